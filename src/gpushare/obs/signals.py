"""The signals that end a component, as something it can wait for."""

import asyncio
import signal


def ending() -> asyncio.Queue[signal.Signals]:
    """A queue of SIGTERM and SIGINT, as they arrive."""
    loop, received = asyncio.get_running_loop(), asyncio.Queue[signal.Signals]()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received.put_nowait, number)
    return received
