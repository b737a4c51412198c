"""One measured figure and its budget, and how figures are shown.

Times are judged in reference time (`bench.yardstick`), everything else as it is.
"""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

TIMES = frozenset({"ms", "s", "CPU ms", "CPU s", "CPU-s"})


class Result(NamedTuple):
    name: str
    value: float
    unit: str
    budget: float | None = None
    of: Callable[[Sequence[float]], float] = min  # how the value was made of its rounds: the best, the mean, ...
    slowness: float = 1.0  # times the reference's time that the yardstick took meanwhile

    def measured_with(self, looks: Sequence[float]) -> "Result":
        """`looks`: at the yardstick, made into one as the rounds were."""
        return self._replace(slowness=self.of(looks)) if self.unit in TIMES else self

    @property
    def reference(self) -> float:
        """The value in reference time."""
        return self.value / self.slowness

    @property
    def ok(self) -> bool:
        return self.budget is None or self.reference <= self.budget

    def as_json(self) -> str:
        fields = {
            "name": self.name, "value": round(self.value, 4), "reference": round(self.reference, 4),
            "unit": self.unit, "budget": self.budget, "ok": self.ok if self.budget is not None else None,
        }  # fmt: skip
        return json.dumps(fields)

    def as_row(self) -> str:
        reference = f"{self.reference:.3f}" if self.unit in TIMES else ""
        budget = "" if self.budget is None else f"<= {self.budget:g} {self.unit}"
        verdict = "" if self.budget is None else ("ok" if self.ok else "MISSED")
        return f"{self.name:<64}{self.value:>9.3f} {self.unit:<6}{reference:>10}{budget:>15}  {verdict}".rstrip()


HEADER = f"{'name':<64}{'value':>9} {'':<6}{'reference':>10}{'budget':>15}  ok"
