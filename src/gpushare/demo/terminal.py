"""The demo's output: lines that scroll, and below them, on a terminal, a table that is redrawn in place.

Without a terminal no table is redrawn, and no pause is made for a reader.
"""

import asyncio
from collections.abc import Sequence

from gpushare.ctl.inspect.watch import cut
from gpushare.ctl.screen import Screen

_CLEAR_BELOW = "\x1b[J"


class Terminal:
    def __init__(self, screen: Screen, *, hurry: bool) -> None:
        self.screen = screen
        self.animated = screen.moves and not hurry
        self._table: list[str] = []
        self._drawn = 0

    def say(self, *lines: str) -> None:
        """Prints lines above the table."""
        self._draw([*lines])

    def show(self, table: Sequence[str]) -> None:
        """Draws the table again if it has changed."""
        if self.animated and list(table) != self._table:
            self._table = list(table)
            self._draw([])

    def settle(self, table: Sequence[str]) -> None:
        """Draws the table for the last time: later lines come below it."""
        self._table = []
        self._draw([*table])

    async def pause(self, seconds: float) -> None:
        """Gives a reader at a terminal time to read."""
        if self.animated:
            await asyncio.sleep(seconds)

    def _draw(self, lines: list[str]) -> None:
        width = self.screen.width
        below = [cut(line, width) for line in self._table] if width else []
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        clear = _CLEAR_BELOW if self.animated else ""
        self.screen.say(up + clear + "".join(f"{line}\n" for line in (*lines, *below)))
        self._drawn = len(below)
