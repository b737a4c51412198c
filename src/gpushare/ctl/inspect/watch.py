"""`-w`: the table is drawn again in place whenever something changes.

The cluster is asked at most twice a second, and for at most a tenth of the time. The alternate screen is not used: the
last table stays after Ctrl-C.
"""

import re
import time
from collections.abc import Callable

import msgspec

from gpushare.ctl.inspect.table import Drawn
from gpushare.ctl.screen import Screen
from gpushare.obs.errors import CLUSTER_NOT_ASKED, INTERRUPTED, UserError
from gpushare.view import wording
from gpushare.view.snapshot import Snapshot

SHORTEST = 0.5  # seconds between two reads
PAUSE = 10  # times the duration of a read, until the next one
NO_ANSWER = "no answer since {time}, trying again"

_PAINT = re.compile(r"(\x1b\[[0-9;]*m)")
_PLAIN = "\x1b[0m"
_CLEAR_LINE, _CLEAR_BELOW, _CLEAR_ALL = "\x1b[2K", "\x1b[J", "\x1b[H\x1b[2J"


class Clock:
    """The time of day, a clock that never jumps, and sleep. Tests replace it."""

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def written(self, moment: float) -> str:
        """In the time zone of the user."""
        return time.strftime("%H:%M:%S", time.localtime(moment))


class Page(msgspec.Struct):
    """A table, the lines below it, the notes for stderr, and the numbers for the line above it."""

    table: Drawn
    below: list[str]
    notes: list[str]
    counts: str


def run(read: Callable[[float], Snapshot], draw: Callable[[Snapshot], Page], screen: Screen, clock: Clock) -> int:
    """Draws until Ctrl-C. An error before the first table is raised; later the last table stays, dim."""
    if not screen.moves:
        why = "it redraws in place, and stdout is not a terminal that can do that"
        raise UserError("-w needs a terminal", why, "leave out -w, or -o json for programs")
    try:
        return _watch(read, draw, screen, clock)
    except KeyboardInterrupt:
        screen.say("\n")  # the terminal has written ^C where the next line begins
        return INTERRUPTED
    finally:
        screen.quiet = False


def _watch(read: Callable[[float], Snapshot], draw: Callable[[Snapshot], Page], screen: Screen, clock: Clock) -> int:
    picture = _Picture(screen)
    cost, shown, since, lost = 0.0, None, clock.now(), False
    while True:
        started, now = clock.elapsed(), clock.now()
        try:
            page = draw(read(now))
            cost, since, gone = clock.elapsed() - started, now, False
        except UserError as error:
            if shown is None or error.code != CLUSTER_NOT_ASKED:
                raise
            page, gone = shown, True
        screen.quiet = True
        if picture.resized() or page != shown or gone != lost:
            title = NO_ANSWER.format(time=clock.written(since)) if gone else f"{clock.written(since)}  {page.counts}"
            picture.show(title, frame(page, screen.height or 0), dim=gone)
        shown, lost = page, gone
        clock.sleep(max(SHORTEST, PAUSE * cost))


def frame(page: Page, height: int) -> list[str]:
    """The lines that fit on the screen: one line is above them, and the cursor's line below."""
    table, below = page.table, [*page.below, *(f"note: {note}" for note in page.notes)]
    room = max(height - 2 - len(table.head) - len(table.foot), 0)
    needed = sum(map(len, table.blocks))
    if needed + len(below) > room:
        below = _first(below, max(room - needed, room // 2))
        table = Drawn(table.head, _first_blocks(table.blocks, room - len(below)), table.foot)
    return [*table.lines(), *below][: max(height - 2, 0)]


def _first(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[: max(most - 1, 0)], "…"][:most]


def _first_blocks(blocks: list[list[str]], most: int) -> list[list[str]]:
    """As many nodes as fit, and how many do not; at least a part of the first one."""
    if sum(map(len, blocks)) <= most:
        return blocks
    kept: list[list[str]] = []
    left = most - 1
    for block in blocks:
        if len(block) > left:
            break
        kept.append(block)
        left -= len(block)
    if not kept and left > 0:
        kept.append(blocks[0][:left])
    rest = len(blocks) - len(kept)
    return [*kept, [f"… {wording.count(rest, 'more node')}"]] if rest else [*kept, ["…"]]


def cut(line: str, width: int) -> str:
    """The line, or as much of it as fits with a `…`. Colour takes no room."""
    parts = _PAINT.split(line)  # text, paint, text, ...
    if sum(map(wording.cells, parts[::2])) <= width:
        return line
    kept, left = "", width - 1
    for i, part in enumerate(parts):
        if i % 2:
            kept += part
            continue
        for character in part:
            left -= wording.cells(character)
            if left < 0:
                return f"{kept}…{_PLAIN}" if i else f"{kept}…"
            kept += character
    return kept


class _Picture:
    """The lines on the screen, and how to replace them."""

    def __init__(self, screen: Screen) -> None:
        self._screen, self._lines, self._begin = screen, 0, ""

    def resized(self) -> bool:
        """Whether the terminal changed its size. Old lines may then be wrapped anyhow: all of them are cleared."""
        if not self._screen.resized():
            return False
        self._begin, self._lines = _CLEAR_ALL, 0
        return True

    def show(self, title: str, lines: list[str], *, dim: bool) -> None:
        width = self._screen.width or 0
        if dim:
            lines = [self._screen.dim(_PAINT.sub("", line)) for line in lines]
        lines = [title, *lines]
        up = f"\x1b[{self._lines}F" if self._lines else ""
        # Each line is cleared before it is written: after a full line the cursor still stands on its last character.
        text = "".join(f"{_CLEAR_LINE}{cut(line, width)}\n" for line in lines)
        self._screen.say(f"{self._begin}{up}{text}{_CLEAR_BELOW}")
        self._begin, self._lines = "", len(lines)
