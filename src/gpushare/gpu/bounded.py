"""Runs a call that may never return in a thread of its own, and waits no longer than a limit.

NVML can hang inside the driver, where nothing can interrupt it. Such a thread is abandoned: it is a daemon, so the
process can end without it. If its call returns later, the thread cleans up itself.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """Counts the abandoned threads whose call has not returned."""

    def __init__(self) -> None:
        self._left: list[threading.Thread] = []

    @property
    def stuck(self) -> int:
        self._left = [thread for thread in self._left if thread.is_alive()]
        return len(self._left)

    async def run(self, work: Callable[[], T], tidy: Callable[[], None], limit: float) -> T:
        """What `work` returns or raises, or TimeoutError. After that, `tidy` runs when `work` returns."""
        loop, finished = asyncio.get_running_loop(), asyncio.Event()
        done: Future[T] = Future()
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(finished.set))
        thread = threading.Thread(target=_body, args=(work, tidy, done), name="nvml", daemon=True)
        thread.start()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(finished.wait(), limit)
        except asyncio.CancelledError:
            if done.cancel():
                self._left.append(thread)
            else:
                threading.Thread(target=tidy, name="nvml-tidy", daemon=True).start()
            raise
        # The first one decides: the thread with its result, or we by giving up. Then the thread cleans up.
        if done.cancel():
            self._left.append(thread)
            raise TimeoutError
        return done.result()


def _body(work: Callable[[], T], tidy: Callable[[], None], done: "Future[T]") -> None:
    result: T | None = None
    error: BaseException | None = None
    try:
        result = work()
    except BaseException as raised:  # noqa: BLE001  # it is raised again where the result is awaited
        error = raised
    if not done.set_running_or_notify_cancel():
        tidy()
    elif error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)  # type: ignore[arg-type]  # there was no error, so this is what work returned
