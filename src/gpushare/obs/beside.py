"""Work that a component does beside its own: what only tells about it must not end it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gpushare.obs import log

AGAIN_SECONDS: Final = 60.0  # after a bug

logger = log.get(__name__)


async def beside(
    work: Callable[[], Awaitable[object]], *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> None:
    """For ever. A bug in this work is logged, and ends nothing else; after a minute the work begins again."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - whatever our bug is, the component does its own work
            logger.error("a bug in gpushare, trying again", where=work.__qualname__, error=repr(error))
        await sleep(AGAIN_SECONDS)
