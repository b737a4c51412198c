"""Time that passes only when everybody waits, and what each moment of it costs in CPU.

The event loop of a life. Hours of a cluster take milliseconds, and nothing depends on how busy the machine is. Between
two looks of the loop at its clock runs what nobody can interrupt: `longest` is the dearest such moment in CPU seconds.
"""

import asyncio
import selectors
import time
from typing import Any

START = 1000.0


class _Skipping(selectors.SelectSelector):
    """Nobody ever waits: time jumps to the next thing that is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.longest = 0.0
        self._before = time.process_time()

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everything waits for something that will never come"
        spent = time.process_time()
        self.longest = max(self.longest, spent - self._before)
        self._before = spent
        self.now += max(timeout, 0)
        return ()  # nobody here ever reads a socket


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = _Skipping()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now

    @property
    def longest(self) -> float:
        return self.virtual.longest
