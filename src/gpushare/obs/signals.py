"""The signals that end a component, as something it can wait for."""

import asyncio
import signal


def ending() -> asyncio.Queue[signal.Signals]:
    """Those that end us, as they come."""
    loop, received = asyncio.get_running_loop(), asyncio.Queue[signal.Signals]()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received.put_nowait, number)
    return received
