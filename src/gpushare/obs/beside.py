"""Work that a component does beside its own: what only tells about it must not end it."""

import asyncio
from collections.abc import Awaitable

from gpushare.obs import log

logger = log.get(__name__)


async def beside(work: Awaitable[None], ended: str) -> None:
    """For ever. A bug in this work is logged, and ends nothing else. `ended`: what is then no longer done."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - whatever our bug is, the component does its own work
        logger.error(ended, error=repr(error))
    await asyncio.Event().wait()
