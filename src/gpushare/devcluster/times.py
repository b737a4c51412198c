"""Times as Kubernetes writes them, and durations as kubectl shows them. Pure."""

import datetime
from typing import Final

DAY: Final = 86400
YEAR: Final = 365 * DAY
# Below so many seconds a length is shown in this unit, and what is left of it in a smaller one, if one is given.
_SCALES: Final = (
    (120, 1, "s", 0, ""),
    (600, 60, "m", 1, "s"),
    (3 * 3600, 60, "m", 0, ""),
    (8 * 3600, 3600, "h", 60, "m"),
    (2 * DAY, 3600, "h", 0, ""),
    (8 * DAY, DAY, "d", 3600, "h"),
    (2 * YEAR, DAY, "d", 0, ""),
    (8 * YEAR, YEAR, "y", DAY, "d"),
)


def timestamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(timestamp: str) -> float:
    return datetime.datetime.fromisoformat(timestamp).timestamp()


def length(span: float) -> str:
    """In one or two units: 5s, 3m20s, 4h, 2d3h. Up to a second in the future is 0s, because clocks differ."""
    whole = int(span)
    if whole < 0:
        return "<invalid>" if whole < -1 else "0s"
    for limit, unit, letter, small, small_letter in _SCALES:
        if whole < limit:
            rest = whole % unit // small if small else 0
            return f"{whole // unit}{letter}" + (f"{rest}{small_letter}" if rest else "")
    return f"{whole // YEAR}y"


def since(timestamp: str | None, now: float) -> str:
    return length(now - seconds(timestamp)) if timestamp else "<unknown>"
