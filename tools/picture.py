"""Draws the picture in README.md: docs/inspect.svg, from a real run of the demo's first eight steps.

Run it when the output of `inspect` changes: `.venv/bin/python -m tools.picture`. The picture shows what a terminal of
100 columns shows. Bars are drawn as rectangles, because fonts draw block characters with gaps.
"""

import asyncio
import html
import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpushare.ctl.inspect import command
from gpushare.ctl.screen import Screen
from gpushare.demo import app
from gpushare.demo.terminal import Terminal

FILE = Path(__file__).resolve().parent.parent / "docs" / "inspect.svg"
STEPS = 8  # after the eighth a pod waits
COLUMNS = 100
CELL, LINE, MARGIN = 8.4, 20, 16  # pixels, for a monospaced font of 14
PAINT = re.compile(r"\x1b\[(\d+)m")
STYLES = {"0": "", "2": ' opacity="0.5"', "31": ' fill="#ff7b72"'}
EIGHTHS = " ▏▎▍▌▋▊▉█"
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img" aria-label="{label}">\n'
    '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
    '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" '
    'fill="#e6edf3">\n'
)


async def shown() -> list[str]:
    """The lines that `gpushare inspect` shows on a terminal while a pod waits."""
    screen = Screen(io.StringIO(), io.StringIO(), width=COLUMNS, height=40, color=True)
    with tempfile.TemporaryDirectory() as folder:
        async with app.prepared(Path(folder), Terminal(screen, hurry=True)) as (world, story):
            await story.tell(STEPS)
            page = command.page(world.look(), command.Options(), screen)
    assert any(line.startswith("Waiting") for line in page.below), f"no pod waits after step {STEPS}"
    return ["$ kubectl inspect gpushare", *page.table.lines(), *page.below]


def drawn(lines: list[str]) -> str:
    width = 2 * MARGIN + CELL * max(len(PAINT.sub("", line)) for line in lines)
    parts = [HEAD.format(width=width, height=2 * MARGIN + LINE * len(lines), label="kubectl inspect gpushare")]
    for row, line in enumerate(lines):
        parts += _line(line, MARGIN + LINE * row)
    return "".join(parts) + "</g>\n</svg>\n"


def _line(line: str, top: float) -> Iterator[str]:
    column, style = 0, ""
    for i, piece in enumerate(PAINT.split(line)):
        if i % 2:
            style = STYLES[piece]
            continue
        for text in re.split(f"([{EIGHTHS[1:]}]+| {{2,}})", piece):
            left = MARGIN + CELL * column
            column += len(text)
            if text and text[0] in EIGHTHS[1:]:
                width = CELL * sum(EIGHTHS.index(character) for character in text) / 8
                yield f'<rect x="{left:.1f}" y="{top + 3:.0f}" width="{width:.1f}" height="13" fill="#3fb950"/>\n'
            elif text.strip():
                place = f'x="{left:.1f}" y="{top + 14:.0f}" textLength="{len(text.rstrip()) * CELL:.1f}"'
                yield f"<text {place}{style}>{html.escape(text.rstrip())}</text>\n"


if __name__ == "__main__":
    FILE.write_text(drawn(asyncio.run(shown())), "utf-8")
