"""Looks at all nodes and waiting pods from time to time, for metrics: in steps, between the calls of schedulers."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from gpushare.core.explain import figures
from gpushare.core.explain.figures import Figures
from gpushare.core.explain.waiting import Waiting, WaitingPods
from gpushare.core.scheduling.life import Life
from gpushare.extender.slices import in_slices
from gpushare.obs import log

SECONDS: Final = 15.0  # between two looks
FIRST_SECONDS: Final = 1.0  # while the cluster is not read

logger = log.get(__name__)


class ClusterFigures:
    """`last`: what was last found; None before the cluster is read."""

    def __init__(self, life: Life) -> None:
        self.last: tuple[Figures, Mapping[str, Waiting]] | None = None
        self._life, self._waiting = life, WaitingPods()

    async def run(self, not_ready: Callable[[], str]) -> None:
        """For ever. While `not_ready` says why, the view of the cluster may be old, and what was found before stays."""
        while True:
            ready = not not_ready()
            if ready:
                await self._try_to_look()
            await asyncio.sleep(SECONDS if ready or self.last is not None else FIRST_SECONDS)

    async def _try_to_look(self) -> None:
        try:
            await self.look()
        except Exception as error:  # noqa: BLE001 - a bug here must not end the extender
            logger.error("the figures of the cluster cannot be worked out", error=repr(error))
            self.last = None

    async def look(self) -> None:
        life, pending = self._life, self._life.pending.shown.values()
        found = await in_slices(figures.counting(life.ledger, pending))
        counting = self._waiting.counting(life.ledger, pending, life.reach.allowed, time.time())
        self.last = found, await in_slices(counting)
