"""Where the demo is shown: lines that scroll, and on a terminal a table below them that changes in place.

Made once by `app`; `story` speaks and the table is drawn whenever something has changed. Without a terminal there is no
table in place and nothing waits for a reader.
"""

import asyncio
from collections.abc import Sequence

from gpushare.ctl.inspect.watch import cut
from gpushare.ctl.screen import Screen

_CLEAR_BELOW = "\x1b[J"


class Stage:
    def __init__(self, screen: Screen, *, hurry: bool) -> None:
        self.screen = screen
        self.moves = screen.moves and not hurry
        self._table: list[str] = []
        self._drawn = 0

    def say(self, *lines: str) -> None:
        """Above the table."""
        self._draw([*lines])

    def show(self, table: Sequence[str]) -> None:
        """The table as it is now; drawn only if it changed, and only where it can change in place."""
        if self.moves and list(table) != self._table:
            self._table = list(table)
            self._draw([])

    def settle(self, table: Sequence[str]) -> None:
        """The table for good: what is said from now on stands below it."""
        self._table = []
        self._draw([*table])

    async def pause(self, seconds: float) -> None:
        """Time to read, where somebody reads."""
        if self.moves:
            await asyncio.sleep(seconds)

    def _draw(self, lines: list[str]) -> None:
        width = self.screen.width
        below = [cut(line, width) for line in self._table] if width else []
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        clear = _CLEAR_BELOW if self.moves else ""
        self.screen.say(up + clear + "".join(f"{line}\n" for line in (*lines, *below)))
        self._drawn = len(below)
