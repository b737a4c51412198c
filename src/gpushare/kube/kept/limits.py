"""Time limits that are hardly ever reached: one timer of the loop serves all that are equally long.

A timer for each request costs more than it looks: it is put in order among the others, cancelled, and cleared away
later. Here a limit is an entry at the end of a list, and taken out again when the request is done.
"""

import asyncio
import itertools
from collections.abc import Callable

Over = Callable[[], None]


class Limits:
    """Each is `seconds` long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = 0
        self._running: dict[int, tuple[float, Over]] = {}  # by number, and so by the time at which they are over
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, over: Over) -> int:
        """`over` is called in time, unless `end` is called with this number before."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._seconds
        self._begun += 1
        self._running[self._begun] = due, over
        if self._timer is None:
            self._timer = loop.call_at(due, self._look)
        return self._begun

    def end(self, number: int) -> None:
        """Also of one that is over already."""
        self._running.pop(number, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        over = list(itertools.takewhile(lambda row: row[1][0] <= now, self._running.items()))
        for number, _ in over:
            del self._running[number]
        # Before the calls: they may begin new ones, or fail.
        left = next(iter(self._running.values()), None)
        self._timer = loop.call_at(left[0], self._look) if left is not None else None
        for _, (_, call) in over:
            call()
