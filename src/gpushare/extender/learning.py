"""What policies that pack learn from the pods that come, while schedulers are answered.

Pods are counted as the watch shows them. Pods without GPUs count where they take CPU and memory from GPUs: on nodes
that share some. Those of a DaemonSet do not, since they come with their node. When policies should learn anew, all of
it happens beside the calls of schedulers: the mix in short steps, what follows from it in a thread. Until that is done
the policies go by what they learned before.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Set
from typing import Final

from gpushare.core.facts import node_rules, objects
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.facts.packing.model import Ask, Mixture, Scorer
from gpushare.core.facts.policies import POLICIES
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.mix import Mix
from gpushare.core.scheduling.reach import Reach
from gpushare.extender.slices import in_slices
from gpushare.obs import log

SECONDS: Final = 1.0  # between two looks at whether to learn
NODES_SECONDS: Final = 60.0  # between two looks at whether the nodes have changed
SWITCH_SECONDS: Final = 0.0005  # so long a scheduler may wait for the thread that learns
COMES_WITH_NODE: Final = ("DaemonSet", "Node")  # owners of pods

logger = log.get(__name__)


class Learning:
    def __init__(self, ledger: Ledger, reach: Reach) -> None:
        self._ledger, self._reach = ledger, reach
        self._mix = Mix()
        self._without_gpus: dict[str, tuple[str, Ask]] = {}  # by uid, with their nodes: which may not be known yet
        self._nodes_due = 0.0
        self.learned = False  # what the pods of the first list show

    # What the watch shows

    def see(self, item: objects.Pod, pod: PodFacts) -> None:
        if pod.uid in self._mix:
            return
        if isinstance(pod.request, Request):
            self._mix.add(pod.uid, Ask.of(pod), node_rules.read(item))
        elif pod.request is None and pod.node and (pod.cpu or pod.memory) and not _comes_with_node(item):
            self._without_gpus[pod.uid] = pod.node, Ask.of(pod)

    def gone(self, uid: str) -> None:
        self._without_gpus.pop(uid, None)
        self._mix.gone(uid)

    def relisted(self, kept: Set[str]) -> None:
        self._mix.relisted(kept)

    # What follows from it

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
        self._count_without_gpus()
        if not self._mix.due() and now < self._nodes_due:
            return
        self._nodes_due = now + NODES_SECONDS
        mixture = await in_slices(self._mix.mixing(self._ledger, self._reach))
        if mixture != self._ledger.mixture:
            self._ledger.learn(mixture, await asyncio.to_thread(_scorers, mixture, self._ledger.packs_by))

    def _count_without_gpus(self) -> None:
        pods, self._without_gpus = self._without_gpus, {}
        for uid, (node, ask) in pods.items():
            if self._ledger.facts(node) is not None:
                self._mix.add(uid, ask, None)


def _comes_with_node(pod: objects.Pod) -> bool:
    return any(owner.controller and owner.kind in COMES_WITH_NODE for owner in pod.metadata.owner_references or ())


def _scorers(mixture: Mixture, policies: Set[str]) -> dict[str, Scorer]:
    """In a thread: it reads what never changes, and writes nothing that others see."""
    makers = {policy: POLICIES[policy].packing for policy in policies}
    return {policy: make(mixture) for policy, make in makers.items() if make is not None}
