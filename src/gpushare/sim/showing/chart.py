"""A picture: how much of the GPUs is given out, over what was asked so far, a line for each policy. SVG. Pure.

The lines differ where the cluster is nearly full, so the picture begins shortly before. Colours are readable on white
and on black, and each line has its name at its end.
"""

from collections.abc import Sequence
from html import escape
from math import floor

from gpushare.sim.results import Point, Run
from gpushare.sim.showing.means import Mean, by_policy
from gpushare.sim.trace import Trace

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 60, 56  # margins; the names are at the right
COLOURS = ("#d1495b", "#2e86ab", "#3a9e5c", "#b57614", "#8e6bbf", "#c2589f", "#5f8a8b", "#a05a2c", "#7d8597", "#4c6ef5")
DASHES = ("", "7 3", "2 3")  # one more difference than colour
LINE_HEIGHT = 15
BEFORE = 20  # percent of load that are shown before the best policy falls behind
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #737980 }
.title { font-size: 15px; font-weight: 600 }
.grid { stroke: #8886; stroke-width: 0.6 }
.axis { stroke: #888; stroke-width: 1 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }"""


def drawn(trace: Trace, runs: Sequence[Run]) -> str:
    policies, timed = by_policy(runs), runs[0].over_time is not None
    first, last = _range(policies, timed)
    shown = [[point for point in policy.points if first <= point.load <= last] for policy in policies]
    values = [point.allocated for points in shown for point in points]
    frame = _Frame(first, last, max(floor(min(values)), 0), min(floor(max(values)) + 1, 100))
    title = "GPUs given out over time" if timed else "GPUs given out over what pods asked for"
    seeds = len(policies[0].runs)
    about = f"{len(trace.nodes):,} nodes, {trace.gpus:,} GPUs" + (f", mean of {seeds} seeds" if seeds > 1 else "")
    below = "time, % of the trace" if timed else "asked so far, % of all GPUs"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
        f"<style>\n{STYLE}\n</style>",
        f'<text class="title" x="{LEFT}" y="24">{title}</text>',
        f'<text x="{LEFT}" y="43">{about}</text>',
        *frame.axes(below, "given out, % of all GPUs"),
        *_lines(policies, shown, frame),
        "</svg>\n",
    ])  # fmt: skip


def _range(policies: Sequence[Mean], timed: bool) -> tuple[int, int]:
    """The loads that are shown: all, or from shortly before even the best policy falls behind what was asked."""
    first, last = policies[0].points[0].load, max([policy.points[-1].load for policy in policies])
    behind = [
        min([point.load for point in policy.points if point.allocated < point.load - 1], default=last)
        for policy in policies
    ]
    return (first if timed else max((max(behind) - BEFORE) // 10 * 10, first)), last


class _Frame:
    """From figures to places in the picture."""

    def __init__(self, left: int, right: int, low: int, high: int) -> None:
        self._left, self._right = left, max(right, left + 1)
        self._low, self._high = low, max(high, low + 1)

    def at(self, point: Point) -> tuple[float, float]:
        return self._x(point.load), self._y(point.allocated)

    def _x(self, load: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (load - self._left) / (self._right - self._left), 1)

    def _y(self, allocated: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (allocated - self._low) / (self._high - self._low), 1)

    def axes(self, below: str, beside: str) -> list[str]:
        right, bottom, middle = WIDTH - RIGHT, HEIGHT - BOTTOM, (TOP + HEIGHT - BOTTOM) // 2
        parts = []
        for figure in _ticks(self._low, self._high):
            y = self._y(figure)
            parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{figure}</text>')
        for figure in _ticks(self._left, self._right):
            x = self._x(figure)
            parts.append(f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}"/>')
            parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{figure}</text>')
        return [
            *parts,
            f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{bottom}H{right}"/>',
            f'<text x="{(LEFT + right) // 2}" y="{HEIGHT - 14}" text-anchor="middle">{below}</text>',
            f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{beside}</text>',
        ]


def _lines(policies: Sequence[Mean], shown: Sequence[Sequence[Point]], frame: _Frame) -> list[str]:
    parts, names = [], []
    for i, (policy, points) in enumerate(zip(policies, shown, strict=True)):
        if not points:
            continue
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        places = [frame.at(point) for point in points]
        path = " ".join([f"{x},{y}" for x, y in places])
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<polyline class="line" stroke="{colour}"{dashed} points="{path}"/>')
        names.append((places[-1][1], f"{policy.policy} {points[-1].allocated:.2f}", colour, dashed))
    free, x = 0.0, WIDTH - RIGHT
    for i, (y, name, colour, dashed) in enumerate(sorted(names)):
        lowest = HEIGHT - BOTTOM - LINE_HEIGHT * (len(names) - 1 - i)
        free = max(free, min(y, lowest))  # names do not cover each other
        parts.append(f'<path class="line" stroke="{colour}"{dashed} d="M{x + 4} {y}L{x + 24} {free:.1f}"/>')
        parts.append(f'<text x="{x + 30}" y="{free + 4:.1f}">{escape(name)}</text>')
        free += LINE_HEIGHT
    return parts


def _ticks(low: int, high: int) -> list[int]:
    """About six round figures."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if (high - low) / step <= 8)
    return list(range(-(-low // step) * step, high + 1, step))
