"""One measured figure and its budget, and how figures are shown."""

import json
from typing import NamedTuple


class Result(NamedTuple):
    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def ok(self) -> bool:
        return self.budget is None or self.value <= self.budget

    def as_json(self) -> str:
        fields = {"name": self.name, "value": round(self.value, 4), "unit": self.unit, "budget": self.budget}
        return json.dumps({**fields, "ok": self.ok if self.budget is not None else None})

    def as_row(self) -> str:
        budget = "" if self.budget is None else f"<= {self.budget:g} {self.unit}"
        verdict = "" if self.budget is None else ("ok" if self.ok else "MISSED")
        return f"{self.name:<62}{self.value:>10.3f} {self.unit:<6}{budget:>14}  {verdict}".rstrip()
