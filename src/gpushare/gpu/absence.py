"""Nodes that may have no driver: one DaemonSet runs on all nodes, and on some of them there is nothing to do.

A driver that is there and broken is not absent: that is an error, and for others to tell.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from gpushare.gpu.device import Backend, NoDriver
from gpushare.obs import log
from gpushare.obs.errors import UserError

ABSENT_SECONDS: Final = 60.0  # between two looks whether there is a driver now
NO_DRIVER: Final = "no NVIDIA driver on this node: nothing to do"

logger = log.get(__name__)


async def looks(
    backend: Backend, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[UserError]:
    """Each look that finds no driver at all, until one does. The first is told in the log."""
    told = False
    while (missing := await _missing(backend)) is not None:
        if not told:
            logger.info(NO_DRIVER, look_again_seconds=ABSENT_SECONDS, what=missing.what, **missing.fields())
            told = True
        yield missing
        await sleep(ABSENT_SECONDS)


async def _missing(backend: Backend) -> NoDriver | None:
    try:
        await backend.devices()
    except UserError as error:
        return error if isinstance(error, NoDriver) else None
    return None
