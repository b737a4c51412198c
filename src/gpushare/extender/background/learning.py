"""What policies that pack learn from the pods that come, while schedulers are answered.

The watch of pods counts them. When policies should learn anew, all of it happens beside the calls of schedulers: the
mix in short steps, what follows from it in a thread, and then the orders of nodes that are kept in short steps. Until
all is done the policies go by what they learned before.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Set
from typing import Final

from gpushare.core.facts.packing.model import Mixture, Scorer
from gpushare.core.facts.policies import POLICIES
from gpushare.core.scheduling import ranking
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.mix import Mix
from gpushare.extender.slices import in_slices

SECONDS: Final = 1.0  # between two looks at whether to learn
NODES_SECONDS: Final = 60.0  # between two looks at whether the nodes have changed
SWITCH_SECONDS: Final = 0.0005  # so long a scheduler may wait for the thread that learns

Make = Callable[[Mixture], Scorer]


class Learning:
    def __init__(self, life: Life) -> None:
        self._life, self._ledger = life, life.ledger
        self.mix = Mix()
        self._nodes_due = 0.0
        self.learned = False  # what the pods of the first list show

    async def run(self, not_ready: Callable[[], str]) -> None:
        """For ever. While `not_ready` says why, the view of the cluster may be old: then nothing is learned."""
        sys.setswitchinterval(SWITCH_SECONDS)
        while True:
            if not not_ready():
                try:
                    await self.look(time.monotonic())
                finally:
                    self.learned = True  # a bug in this must not keep schedulers waiting
            await asyncio.sleep(SECONDS)

    async def look(self, now: float) -> None:
        """Learns, if there is something to learn."""
        if not self.mix.due() and now < self._nodes_due:
            return
        self._nodes_due = now + NODES_SECONDS
        mixture = await in_slices(self.mix.mixing(self._ledger, self._life.reach))
        if self.mix.due() or not mixture.same_cluster(self._ledger.mixture):
            self.mix.learned()
            # A policy that no pod asked for yet is made when one does.
            makers = _makers(self._ledger.packs_by | {self._life.policy})
            scorers = await asyncio.to_thread(_scorers, makers, mixture) if makers else {}
            self._ledger.learn(mixture, scorers, await in_slices(ranking.relearning(self._ledger, scorers)))


def _makers(policies: Set[str]) -> dict[str, Make]:
    makers = {policy: POLICIES[policy].packing for policy in policies}
    return {policy: make for policy, make in makers.items() if make is not None}


def _scorers(makers: Mapping[str, Make], mixture: Mixture) -> dict[str, Scorer]:
    """In a thread: it reads what never changes, and writes nothing that others see."""
    return {policy: make(mixture) for policy, make in makers.items()}
