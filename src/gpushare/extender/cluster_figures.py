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

SECONDS: Final = 15.0  # between two looks


class ClusterFigures:
    """`last`: what was last found; None before the cluster is read."""

    def __init__(self, life: Life) -> None:
        self.last: tuple[Figures, Mapping[str, Waiting]] | None = None
        self._life, self._waiting = life, WaitingPods()

    async def run(self, not_ready: Callable[[], str]) -> None:
        """For ever. While `not_ready` says why, the view of the cluster may be old, and what was found before stays."""
        while True:
            if not not_ready():
                await self.look()
            await asyncio.sleep(SECONDS if self.last is not None else 1.0)

    async def look(self) -> None:
        life, pending = self._life, self._life.pending.shown.values()
        found = await in_slices(figures.counting(life.ledger, pending))
        counting = self._waiting.counting(life.ledger, pending, life.reach.allowed, time.time())
        self.last = found, await in_slices(counting)
