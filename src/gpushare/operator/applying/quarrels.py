"""Objects that somebody changes each time they are put back, such as another controller.

Without an end both would write several times a second. So an object is put back a few times a minute, which is enough
for people's edits, and as long as that is not enough the status says so.
"""

import time
from collections.abc import Callable
from typing import Final

from gpushare.operator.seeing.keys import Key

MOST: Final = 5  # times that an object is put back
PERIOD: Final = 60.0  # within so many seconds
TEXT: Final = (
    "{key} was changed {most} times within {period:.0f} s after it had been put back: find out who does that: "
    "kubectl get {kind} {where}{name} -o yaml --show-managed-fields"
)


class Quarrels:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._times: dict[Key, list[float]] = {}
        self._clock = clock

    def put_back(self, key: Key) -> None:
        self._times[key] = [*self._recent(key), self._clock()]

    def over(self, key: Key) -> str:
        """What to say about an object that has been put back often enough; empty: it may be put back."""
        if len(self._recent(key)) < MOST:
            return ""
        where = f"-n {key.namespace} " if key.namespace else ""
        return TEXT.format(key=key, most=MOST, period=PERIOD, kind=key.kind.lower(), where=where, name=key.name)

    def later(self) -> float | None:
        """In so many seconds the next one may be put back."""
        waits = [self._recent(key)[0] + PERIOD - self._clock() for key in self._times if self.over(key)]
        return min(waits, default=None)

    def _recent(self, key: Key) -> list[float]:
        return [one for one in self._times.get(key, ()) if self._clock() - one < PERIOD]
