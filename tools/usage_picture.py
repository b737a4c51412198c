"""Draws the picture in docs/metrics.md: docs/usage.svg, from what a real Prometheus scraped from a real node part.

The test of Prometheus in `tests/e2e` keeps the answers to its range queries with the logs. Run it after that test:
`make e2e ARGS="-k prometheus"`, then `.venv/bin/python -m tools.usage_picture .build/log/e2e/usage.json`. Each
container has a row: what it used, over time, what it asked for, and its peak. What was not known is left out.
"""

import html
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parent.parent / "docs" / "usage.svg"
MIB = 1 << 20
WIDTH, ROW, LEFT, RIGHT, TOP, GAP = 860, 130, 64, 236, 62, 34
PLOT = WIDTH - LEFT - RIGHT
USED, OVER, ASKED, PEAK, FAINT = "#58a6ff", "#ff7b72", "#e6edf3", "#d29922", "#8b949e"
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" aria-label="{label}">\n'
    '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
    '<g font-family="ui-sans-serif, system-ui, Segoe UI, Helvetica, Arial, sans-serif" font-size="13" fill="#e6edf3">\n'
)
Points = list[tuple[float, float]]  # time and MiB


class Row(NamedTuple):
    name: str
    asked: float
    peak: float
    used: Points

    @property
    def advice(self) -> int:
        """The peak and a tenth more, as docs/metrics.md says."""
        return math.ceil(self.peak * 11 / 10)  # 1.1 is a little more than a tenth more


def rows(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Row]:
    """By container, those that hold most idle first."""
    asked = {_name(series): float(series["values"][-1][1]) / MIB for series in answers["granted"]}
    peaks = {_name(series): float(series["value"][1]) / MIB for series in answers["peak"]}
    used = {_name(series): [(at, float(value) / MIB) for at, value in series["values"]] for series in answers["used"]}
    found = [Row(name, asked[name], peaks[name], used[name]) for name in used if name in asked and name in peaks]
    return sorted(found, key=lambda row: row.peak - row.asked)


def _name(series: Mapping[str, Any]) -> str:
    return f"{series['metric']['pod']} ({series['metric']['container']})"


def drawn(found: Sequence[Row], title: str) -> str:
    height = TOP + len(found) * (ROW + GAP)
    begin, end = found[0].used[0][0], found[0].used[-1][0]
    largest = max(max(row.asked, row.peak) for row in found) * 1.1
    parts = [HEAD.format(width=WIDTH, height=height, label=html.escape(title)), *_legend(title)]
    for number, row in enumerate(found):
        parts += _row(row, TOP + number * (ROW + GAP), begin, end, largest)
    return "".join(parts) + "</g>\n</svg>\n"


def _legend(title: str) -> Iterator[str]:
    yield f'<text x="16" y="24" font-size="15" font-weight="600">{html.escape(title)}</text>\n'
    x = 16
    for color, text in ((USED, "used"), (OVER, "used above what it asked for"), (ASKED, "asked for"), (PEAK, "peak")):
        yield f'<rect x="{x}" y="36" width="14" height="10" fill="{color}"/>\n'
        yield f'<text x="{x + 20}" y="46">{text}</text>\n'
        x += 50 + 7 * len(text)


def _row(row: Row, top: int, begin: float, end: float, largest: float) -> Iterator[str]:
    bottom = top + ROW

    def x(at: float) -> float:
        return LEFT + PLOT * (at - begin) / (end - begin)

    def y(mib: float) -> float:
        return bottom - (ROW - 14) * mib / largest

    def area(points: Points, floor: float, color: str) -> str:
        line = " ".join(f"{x(at):.1f},{y(mib):.1f}" for at, mib in points)
        base = f"{x(points[-1][0]):.1f},{y(floor):.1f} {x(points[0][0]):.1f},{y(floor):.1f}"
        return f'<polygon points="{line} {base}" fill="{color}" fill-opacity="0.75"/>\n'

    def level(mib: float, color: str, dashes: str) -> str:
        return (
            f'<line x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y(mib):.1f}" y2="{y(mib):.1f}" stroke="{color}" '
            f'stroke-width="1.5" stroke-dasharray="{dashes}"/>\n'
        )

    yield area([(at, min(mib, row.asked)) for at, mib in row.used], 0, USED)
    if row.peak > row.asked:
        yield area([(at, max(mib, row.asked)) for at, mib in row.used], row.asked, OVER)
    yield level(row.asked, ASKED, "none") + level(row.peak, PEAK, "5 4")
    yield f'<line x1="{LEFT}" x2="{LEFT + PLOT}" y1="{bottom}" y2="{bottom}" stroke="{FAINT}"/>\n'
    for at, anchor, text in ((begin, "start", "0 s"), (end, "end", f"{end - begin:.0f} s")):
        yield f'<text x="{x(at):.1f}" y="{bottom + 16}" fill="{FAINT}" text-anchor="{anchor}">{text}</text>\n'
    for mib in (0.0, row.asked):
        yield f'<text x="{LEFT - 8}" y="{y(mib) + 4:.1f}" fill="{FAINT}" text-anchor="end">{mib:.0f}</text>\n'
    yield from _words(row, top)


def _words(row: Row, top: int) -> Iterator[str]:
    idle = row.asked - row.peak
    said = f"held idle: {idle:.0f} MiB" if idle >= 0 else f"over-use: {-idle:.0f} MiB"
    lines = (f"asked for {row.asked:.0f} MiB, peak {row.peak:.0f}", said, f"ask for {row.advice} MiB")
    x = LEFT + PLOT + 16
    yield f'<text x="{x}" y="{top + 30}" font-weight="600">{html.escape(row.name)}</text>\n'
    for number, text in enumerate(lines):
        color = OVER if number == 1 and idle < 0 else ASKED
        yield f'<text x="{x}" y="{top + 52 + 20 * number}" fill="{color}">{text}</text>\n'


if __name__ == "__main__":
    answers = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    labels = answers["used"][0]["metric"]
    FILE.write_text(drawn(rows(answers), f"GPU {labels['gpu']} of {labels['node']}: three containers, MiB"), "utf-8")
