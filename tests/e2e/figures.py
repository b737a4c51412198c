"""What the tests measured, for people: shown before pytest's closing line and kept beside the logs."""

from collections.abc import Sequence
from pathlib import Path


class Figures:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, what: str, figures: str) -> None:
        self.lines.append(f"  {what}: {figures}")

    def write(self, path: Path) -> None:
        if self.lines and path.parent.is_dir():
            path.write_text("".join(f"{line}\n" for line in self.lines))


def distribution(seconds: Sequence[float]) -> str:
    """Least, median, nine tenths and most of some durations, in milliseconds."""
    ordered = sorted(value * 1000 for value in seconds)
    points = {"min": 0.0, "median": 0.5, "p90": 0.9, "max": 1.0}
    shown = ", ".join(f"{name} {ordered[round(at * (len(ordered) - 1))]:.0f}" for name, at in points.items())
    return f"{len(ordered)} times, ms: {shown}"
