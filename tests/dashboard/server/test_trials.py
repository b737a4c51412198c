"""Long work: one piece at a time, a short queue, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from gpushare.dashboard.server.problems import Problem
from gpushare.dashboard.server.trials import MOST_WAITING, Trials


@pytest.fixture
async def gate() -> AsyncIterator[threading.Event]:
    """Work waits for it."""
    made = threading.Event()
    yield made
    made.set()


async def test_one_piece_is_worked_on_at_a_time_and_others_go_on_meanwhile(gate: threading.Event) -> None:
    trials, running, most = Trials(), 0, 0

    def work() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        gate.wait(10)
        running -= 1
        return 7

    asked = [asyncio.create_task(trials.run(work)) for _ in range(3)]
    await asyncio.sleep(0)  # the loop is free
    gate.set()
    assert await asyncio.gather(*asked) == [7, 7, 7]
    assert most == 1
    trials.close()


async def test_who_comes_when_the_queue_is_full_is_told_to_try_again(gate: threading.Event) -> None:
    trials = Trials()
    asked = [asyncio.create_task(trials.run(lambda: gate.wait(10))) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(Problem) as caught:
        await trials.run(lambda: None)
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "5"})
    gate.set()
    await asyncio.gather(*asked)
    assert await trials.run(lambda: 1) == 1
    trials.close()


async def test_who_waits_too_long_is_told_and_the_next_one_waits_for_the_work(gate: threading.Event) -> None:
    trials = Trials(seconds=0.0)
    with pytest.raises(Problem, match="503"):
        await trials.run(lambda: gate.wait(10))
    assert trials._waiting == 1
    gate.set()
    trials.close()


async def test_what_fails_in_the_thread_is_raised_here() -> None:
    trials = Trials()
    with pytest.raises(ZeroDivisionError):
        await trials.run(lambda: 1 // 0)
    trials.close()
