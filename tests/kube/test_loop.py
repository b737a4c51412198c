"""Failed work is tried again, less and less often, and never forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpushare.kube import loop
from gpushare.kube.loop import Backoff, Loop


class Work:
    """Answers as told, then that all is done."""

    def __init__(self, *answers: bool, limits: tuple[float, float] | None = None) -> None:
        self.calls = 0
        self.slept: list[float] = []
        self.loop = Loop(self._call, limits, sleep=self.sleep, chance=lambda: 0.5)
        self._answers = list(answers)

    async def _call(self) -> bool:
        self.calls += 1
        return self._answers.pop(0) if self._answers else True

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@asynccontextmanager
async def running(work: Work) -> AsyncIterator[None]:
    task = asyncio.create_task(work.loop.run())
    try:
        yield
    finally:
        task.cancel()


async def quiet() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_delays_are_spread_by_chance_and_never_longer_than_ten_seconds() -> None:
    chance = iter([0.0, 1.0] * 10)
    backoff = Backoff(chance=lambda: next(chance))
    delays = [backoff.delay() for _ in range(20)]
    assert delays[0] == pytest.approx(0.075)
    assert delays[1] == pytest.approx(0.25)
    assert max(delays) == 10.0
    assert min(delays[10:]) == 7.5


def test_after_a_success_delays_begin_small_again() -> None:
    backoff = Backoff((1.0, 60.0), chance=lambda: 0.5)
    assert [backoff.delay() for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    backoff.reset()
    assert backoff.delay() == 1.0


async def test_nothing_is_done_until_somebody_asks_for_it() -> None:
    work = Work()
    async with running(work):
        await quiet()
        assert work.calls == 0
        work.loop.wake()
        await quiet()
        assert (work.calls, work.slept) == (1, [])


async def test_several_wake_ups_are_one() -> None:
    work = Work()
    for _ in range(3):
        work.loop.wake()
    async with running(work):
        await quiet()
        assert work.calls == 1


async def test_what_fails_is_tried_again_later_and_later() -> None:
    work = Work(False, False, False, True, False)
    work.loop.wake()
    async with running(work):
        await quiet()
        assert (work.calls, work.slept) == (4, [0.1, 0.2, 0.4])
        work.loop.wake()
        await quiet()
        assert (work.calls, work.slept) == (6, [0.1, 0.2, 0.4, 0.1])


async def test_whoever_must_not_wait_long_says_so() -> None:
    work = Work(False, False, False, False, limits=(0.5, 2.0))
    async with running(work):
        work.loop.wake()
        await quiet()
    assert work.slept == [0.5, 1.0, 2.0, 2.0]


async def test_a_wake_up_during_the_work_makes_it_run_once_more() -> None:
    seen: list[int] = []

    async def wake_once() -> bool:
        if not seen:
            kept.wake()
        seen.append(1)
        return True

    kept = Loop(wake_once)
    kept.wake()
    task = asyncio.create_task(kept.run())
    await quiet()
    task.cancel()
    assert len(seen) == 2


async def test_a_call_is_repeated_until_it_has_a_result() -> None:
    answers, work = [None, None, 7], Work()

    async def ask() -> int | None:
        return answers.pop(0)

    assert await loop.until_done(ask, sleep=work.sleep, chance=lambda: 0.5) == 7
    assert work.slept == [0.1, 0.2]
