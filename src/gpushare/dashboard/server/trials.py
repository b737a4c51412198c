"""Work that takes long, in a thread: one piece at a time, with a short queue and a limit on how long is waited.

The thread takes turns with the rest of the process, so that streams go on meanwhile.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from gpushare.dashboard.server.problems import Problem

SECONDS: Final = 30.0
MOST_WAITING: Final = 8
BUSY: Final = "others are trying something at the moment"
TOO_LONG: Final = "this took longer than {seconds:.0f} s"

T = TypeVar("T")


class Trials:
    def __init__(self, seconds: float = SECONDS) -> None:
        self._thread = ThreadPoolExecutor(1, "trial")
        self._seconds = seconds
        self._waiting = 0  # with the one that is being worked on, even if nobody waits for it any more

    async def run(self, work: Callable[[], T]) -> T:
        if self._waiting >= MOST_WAITING:
            raise Problem(503, BUSY, f"{self._waiting} are waiting", "try again soon", headers={"Retry-After": "5"})
        self._waiting += 1
        working = asyncio.get_running_loop().run_in_executor(self._thread, work)
        working.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(working), self._seconds)
        except TimeoutError:
            raise Problem(503, TOO_LONG.format(seconds=self._seconds), "", "try less at once") from None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _done(self, working: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not working.cancelled():
            working.exception()  # seen: whoever waits gets it
