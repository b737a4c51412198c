"""A thread that is left behind tidies up; one that ends in time, even just in time, hands over what it has."""

import asyncio
import threading

import pytest

from gpushare.gpu.bounded import Threads

LONG = 30.0


class Work:
    """Ends when it is let, and says whether somebody tidied up after it."""

    def __init__(self) -> None:
        self.begun, self.let, self.tidied = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.let.wait(LONG)
        return "done"

    def run(self, threads: Threads, limit: float = LONG) -> "asyncio.Task[str]":
        return asyncio.create_task(threads.run(self, self.tidied.set, limit))

    async def is_running(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, LONG)


async def test_what_ends_in_time_is_returned_and_not_tidied_up() -> None:
    threads, work = Threads(), Work()
    work.let.set()
    assert await work.run(threads) == "done"
    assert threads.stuck == 0
    assert not work.tidied.is_set()


async def test_what_it_raises_is_raised() -> None:
    def fails() -> None:
        raise LookupError("no such GPU")

    with pytest.raises(LookupError, match="no such GPU"):
        await Threads().run(fails, pytest.fail, LONG)


@pytest.mark.parametrize("way", ["limit", "cancelled"])
async def test_what_is_left_behind_counts_until_it_has_come_back_and_tidied_up(way: str) -> None:
    threads, work = Threads(), Work()
    task = work.run(threads, limit=0.01 if way == "limit" else LONG)
    await work.is_running()
    if way == "cancelled":
        task.cancel()
    with pytest.raises(TimeoutError if way == "limit" else asyncio.CancelledError):
        await task
    assert threads.stuck == 1
    assert not work.tidied.is_set()
    work.let.set()
    assert await asyncio.to_thread(work.tidied.wait, LONG)
    join("nvml")
    assert threads.stuck == 0


async def test_who_is_cancelled_when_the_work_is_done_still_has_it_tidied_up() -> None:
    threads, work = Threads(), Work()
    task = work.run(threads)
    await work.is_running()
    work.let.set()
    join("nvml")  # done, but the loop does not know yet: it has not run since
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(work.tidied.wait, LONG)


async def test_what_ends_at_the_last_moment_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, work = Threads(), Work()
    # The limit is over before the loop hears that the work is done.
    monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", lambda *_: None)
    task = work.run(threads, limit=0.02)
    await asyncio.sleep(0)
    work.let.set()
    join("nvml")
    assert await task == "done"
    assert threads.stuck == 0
    assert not work.tidied.is_set()


def join(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(LONG)
