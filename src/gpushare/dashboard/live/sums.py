"""The cluster as a whole over time: what its GPUs have, what is given out and used, and which pods waited.

Pure. As in `rings` there is a row every 15 seconds for an hour, and one every 5 minutes for 48 hours. That of 5 minutes
has the means of memory, and of waiting pods the peak: a wait of a minute is to be seen.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from gpushare.dashboard.live.columns import UNKNOWN
from gpushare.dashboard.live.rings import COARSE, FINE, LONG_STEP, STEP


class Cluster(msgspec.Struct, frozen=True):
    """In MiB; of what is used -1 is unknown."""

    total: int = 0
    granted: int = 0
    used: int = UNKNOWN
    waiting: dict[str, int] = {}  # pods by code


Row = tuple[float, Cluster]


class Sums:
    def __init__(self) -> None:
        self._fine: deque[Row] = deque(maxlen=FINE)
        self._coarse: deque[Row] = deque(maxlen=COARSE)
        self._window: list[Row] = []  # since the last row of 5 minutes

    def sample(self, now: float, cluster: Cluster) -> None:
        if self._window and self._window[-1][0] // LONG_STEP != now // LONG_STEP:
            self._coarse.append((self._window[-1][0], _of_window([one for _, one in self._window])))
            self._window = []
        self._fine.append((now, cluster))
        self._window.append((now, cluster))

    def turn_back(self, time: float) -> None:
        """The clock was set back to this: rows of what is still to come were made by a wrong one."""
        for rows in (self._fine, self._coarse, self._window):
            while rows and rows[-1][0] >= time:
                rows.pop()

    def columns(self, seconds: float, now: float) -> dict[str, Any]:
        """Of the last so many seconds. What is in a gap is None."""
        found = self._rows(seconds, now)
        codes = sorted({code for _, one in found if one is not None for code in one.waiting})
        return {
            "times": [round(time, 1) for time, _ in found],
            "total": [one.total if one is not None else None for _, one in found],
            "granted": [one.granted if one is not None else None for _, one in found],
            "used": [one.used if one is not None and one.used != UNKNOWN else None for _, one in found],
            "waiting": {
                code: [one.waiting.get(code, 0) if one is not None else None for _, one in found] for code in codes
            },
        }

    def _rows(self, seconds: float, now: float) -> list[tuple[float, Cluster | None]]:
        rows, step = list(self._fine), STEP
        if seconds > STEP * FINE:
            step = LONG_STEP
            last = self._coarse[-1][0] if self._coarse else float("-inf")
            rows = [*self._coarse, *(row for row in self._fine if row[0] > last)]
        found: list[tuple[float, Cluster | None]] = []
        for time, one in rows:
            if now - seconds < time <= now:
                before = found[-1][0] if found else time
                found += [(before + step, None)] if time - before > 2.5 * step else []
                found.append((time, one))
        return found


def _of_window(rows: Sequence[Cluster]) -> Cluster:
    used = [row.used for row in rows if row.used != UNKNOWN]
    codes = {code for row in rows for code in row.waiting}
    return Cluster(
        total=rows[-1].total,
        granted=sum(row.granted for row in rows) // len(rows),
        used=sum(used) // len(used) if used else UNKNOWN,
        waiting={code: max(row.waiting.get(code, 0) for row in rows) for code in sorted(codes)},
    )
