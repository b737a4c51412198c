"""`--on-overuse=evict`: asks the API server to end pods that use more of a GPU than they asked for.

One pod per GPU and minute, the largest over-user first, so that one eviction may be enough. Disruption budgets are
respected, because the eviction API does. Pods of the system, static pods and those that end already are left alone.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gpushare.core.scheduling.system_pods import is_of_the_system
from gpushare.kube import failures, pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.failures import Outcome
from gpushare.node.pods import NodePods, Pod
from gpushare.node.usage.model import Usage
from gpushare.node.usage.overuse import OverUse
from gpushare.node.usage.overuse_events import MIB, OverUses, fields
from gpushare.obs import log

PAUSE_SECONDS: Final = 60.0  # between two evictions from one GPU, and before the same pod is tried again
EVICTED, KEPT = "GPUOverUseEvicted", "GPUOverUseNotEvicted"  # reasons of events
WHY: Final = "evicted: container {container} used {used} MiB of GPU {gpu} on {node}, and asked for {granted} MiB"
BUDGET: Final = "not evicted: a disruption budget keeps it; gpushare tries again every minute"
RIGHT: Final = "remove the # before pods/eviction in the ClusterRole of its manifest in deploy/"

logger = log.get(__name__)


class Evictor:
    def __init__(
        self, node: str, api: Api, pods: NodePods, over: OverUses, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node, self._api, self._pods, self._over, self._clock = node, api, pods, over, clock
        self._looked = asyncio.Event()
        self._next: dict[str, float] = {}  # when the next pod of that GPU, by uuid, or the same pod, by uid, may go
        self._kept: set[str] = set()  # uids of pods of which it was said that a budget keeps them

    def look(self, usage: Usage) -> None:
        """After `OverUses` has looked."""
        self._looked.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._looked.wait()
            self._looked.clear()
            await self.evict()

    async def evict(self) -> None:
        """Those whose turn it is."""
        now = self._clock()
        self._next = {key: until for key, until in self._next.items() if until > now}
        self._kept &= {over.key.pod_uid for over in self._over.current}
        for over in self._over.current:
            uid, gpus = over.key.pod_uid, self._gpus(over.key.pod_uid)
            if uid not in self._next and not gpus & self._next.keys() and self._may_go(over):
                self._next[uid] = now + PAUSE_SECONDS
                if await self._may_be_evicted(over):
                    self._next |= dict.fromkeys(gpus, now + PAUSE_SECONDS)

    def _gpus(self, uid: str) -> set[str]:
        """On which a pod uses too much."""
        return {over.key.uuid for over in self._over.current if over.key.pod_uid == uid}

    def _may_go(self, over: OverUse) -> bool:
        found = self._pods.pods.get(over.key.pod_uid)
        return found is not None and self._over.is_certain(over) and not is_left_alone(found.pod)

    async def _may_be_evicted(self, over: OverUse) -> bool:
        """Also if no answer came, or that of a failure: the pod may end all the same."""
        try:
            await pod_requests.evict(self._api, over.namespace, over.pod, over.key.pod_uid)
        except KubeError as error:
            outcome = failures.of_eviction(error)
            if outcome is Outcome.KEPT:
                self._keep(over)
            elif outcome is not Outcome.GONE:
                self._complain(over, error)
            return outcome is Outcome.UNCLEAR
        self._over.evictions += 1
        logger.warn("evicted a pod that used more of a GPU than it asked for", **fields(over))
        words = WHY.format(
            container=over.key.container, used=over.used // MIB, gpu=over.gpu, node=self._node,
            granted=over.granted // MIB,
        )  # fmt: skip
        self._over.tell(over, "Warning", EVICTED, words)
        return True

    def _keep(self, over: OverUse) -> None:
        """Said once."""
        if over.key.pod_uid not in self._kept:
            self._kept.add(over.key.pod_uid)
            self._over.tell(over, "Warning", KEPT, BUDGET)

    def _complain(self, over: OverUse, error: KubeError) -> None:
        why = failures.explain(error, self._api.access)
        lacks = isinstance(error, ApiError) and error.status == 403
        told = {"what": why.what, **why.fields()} | ({"try": RIGHT} if lacks else {})
        logger.warn("a pod cannot be evicted", **fields(over), **told)


def is_left_alone(pod: Pod) -> bool:
    """Whether such a pod is never evicted."""
    return (
        is_of_the_system(pod.spec.priority or 0, pod.spec.priority_class_name or "")
        or pod.metadata.deletion_timestamp is not None
        or bool(pod.static_uid)
    )
