"""Trying again: longer and longer delays, a call repeated until it succeeds, and the loop that keeps something current.

Whoever writes to the cluster works in such a loop: woken by whatever changed, it compares, writes what differs, and
tries again later if that failed. Wake-ups that come meanwhile count as one.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

FIRST_DELAY, LONGEST_DELAY = 0.1, 10.0  # seconds

Chance = Callable[[], float]
Sleep = Callable[[float], Awaitable[object]]
T = TypeVar("T")


class Backoff:
    """Delays in seconds, each twice as long as the one before, until `reset`. Chance spreads those of many nodes."""

    def __init__(self, limits: tuple[float, float] | None = None, *, chance: Chance = random.random) -> None:
        """`limits`: the first and the longest delay."""
        self._first, self._longest = limits or (FIRST_DELAY, LONGEST_DELAY)
        self._chance = chance
        self._next = self._first

    def delay(self) -> float:
        now, self._next = self._next, min(self._next * 2, self._longest)
        return min(now * (0.75 + self._chance() / 2), self._longest)

    def reset(self) -> None:
        self._next = self._first


class Loop:
    """Calls `work` once after each `wake`, and again later while `work` returns False: something is left to do."""

    def __init__(
        self,
        work: Callable[[], Awaitable[bool]],
        limits: tuple[float, float] | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        chance: Chance = random.random,
    ) -> None:
        """`limits`: of the delays after a failure, during which nothing else is done either."""
        self.retry = Backoff(limits, chance=chance)
        self._work, self._sleep = work, sleep
        self._awake = asyncio.Event()

    def wake(self) -> None:
        self._awake.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._awake.wait()
            self._awake.clear()
            if await self._work():
                self.retry.reset()
            else:
                await self._sleep(self.retry.delay())
                self._awake.set()


async def until_done(
    work: Callable[[], Awaitable[T | None]], *, sleep: Sleep = asyncio.sleep, chance: Chance = random.random
) -> T:
    """What `work` returns as soon as that is not None."""
    retry = Backoff(chance=chance)
    while (result := await work()) is None:
        await sleep(retry.delay())
    return result
