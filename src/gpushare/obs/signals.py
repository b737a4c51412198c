"""The signals that end a component, as something it can wait for."""

import asyncio
import signal
from collections.abc import Coroutine


def ending() -> asyncio.Queue[signal.Signals]:
    """A queue of SIGTERM and SIGINT, as they arrive."""
    loop, received = asyncio.get_running_loop(), asyncio.Queue[signal.Signals]()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received.put_nowait, number)
    return received


async def until_signalled(
    running: Coroutine[None, None, None], signals: asyncio.Queue[signal.Signals]
) -> signal.Signals:
    """Runs until a signal comes, and returns it. What fails before is raised."""
    work, stop = asyncio.create_task(running), asyncio.create_task(signals.get())
    try:
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (work, stop):
            task.cancel()
        ended, _ = await asyncio.gather(work, stop, return_exceptions=True)
    if isinstance(ended, Exception):
        raise ended
    return stop.result()
