"""Figures that tests measured, for people: printed before pytest's last line."""

from collections.abc import Sequence


class Figures:
    def __init__(self, lines: list[str] | None = None, prefix: str = "") -> None:
        self.lines: list[str] = [] if lines is None else lines
        self._prefix = prefix

    def say(self, what: str, figures: str) -> None:
        self.lines.append(f"  {self._prefix}{what}: {figures}")

    def of(self, whom: str) -> "Figures":
        """The same, with a prefix on each line."""
        return Figures(self.lines, f"{whom}: ")


def distribution(seconds: Sequence[float]) -> str:
    """Minimum, median, 90th percentile and maximum of some durations, in milliseconds."""
    ordered = sorted(value * 1000 for value in seconds)
    points = {"min": 0.0, "median": 0.5, "p90": 0.9, "max": 1.0}
    shown = ", ".join(f"{name} {ordered[round(at * (len(ordered) - 1))]:.0f}" for name, at in points.items())
    return f"{len(ordered)} times, ms: {shown}"
