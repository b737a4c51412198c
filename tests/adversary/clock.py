"""Time that passes only when everybody waits, and what each moment of it costs in CPU.

The event loop of a life. Hours of a cluster take milliseconds, and nothing depends on how busy the machine is. Between
two looks of the loop at its clock runs what nobody can interrupt: `longest` is the dearest such moment in CPU seconds.
"""

import asyncio
import math
import selectors
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
START = 1000.0
MOST_TURNS = 100_000  # of the loop at one moment


class _Skipping(selectors.SelectSelector):
    """Nobody ever waits: time jumps to the next thing that is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.longest = 0.0
        self._still = 0
        self._before = time.process_time()

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everything waits for something that will never come"
        spent = time.process_time()
        self.longest = max(self.longest, spent - self._before)
        self._before = spent
        if timeout > 0:
            # In whole microseconds, rounded up: whoever is woken finds that his time has come.
            self.now, self._still = math.ceil((self.now + timeout) * 1e6) / 1e6, 0
        self._still += 1
        assert self._still < MOST_TURNS, "something goes round and round without letting time pass"
        return ()  # nobody here ever reads a socket


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = _Skipping()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """There are no threads here, whose time would be another one: what they do is done at once."""
        done = self.create_future()
        done.set_result(func(*args))
        return done

    @property
    def longest(self) -> float:
        return self.virtual.longest
