"""Waiting for something that is sure to come, with an end to the wait.

`until` looks again when the embedded API server has stored something; `eventually` looks every few milliseconds, for
what no store shows; `eventually_asked` does so with a question that has to be awaited.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer

PATIENCE = 60.0  # seconds: the cores may be busy with other things
T = TypeVar("T")


async def until(server: ApiServer, condition: Callable[[], T | None]) -> T:
    """What the condition returns, as soon as that is true."""
    async with asyncio.timeout(PATIENCE):
        while not (result := condition()):
            await server.hub.sleep([kind.resource for kind in table.KINDS])
        return result


async def eventually(condition: Callable[[], T | None], what: str = "it", seconds: float = PATIENCE) -> T:
    """What the condition returns, as soon as that is true. `what` names it in the error."""

    async def asked() -> T | None:
        return condition()

    return await eventually_asked(asked, what, seconds, every=0.002)


async def eventually_asked(
    condition: Callable[[], Awaitable[T | None]], what: str = "it", seconds: float = PATIENCE, every: float = 0.1
) -> T:
    """The same for a condition that is awaited. `every`: seconds between two questions."""
    ends = time.monotonic() + seconds
    while not (result := await condition()):
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(every)
    return result
