"""Marks pods whose containers have started: `ALIYUN_COM_GPU_MEM_ASSIGNED` becomes `true`, as the original does it.

Reads the pods of this node, writes one annotation of one pod at a time. Whether a pod is marked decides nothing about
its memory, which counts from its binding on; people and the original's tools read it.
"""

from gpushare.core.facts import names
from gpushare.core.facts.model import Request
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.loop import Loop
from gpushare.node.pods import NodePod, NodePods
from gpushare.obs import log

logger = log.get(__name__)


def is_due(seen: NodePod) -> bool:
    """Bound by an extender, not marked, and every container that asks for GPUs has started. One without the annotation
    was bound by somebody else; one that has ended holds nothing any more."""
    facts = seen.facts
    if not isinstance(facts.request, Request) or facts.finished or facts.annotation(names.ALIYUN_ASSIGNED) != "false":
        return False
    statuses = seen.pod.statuses()
    asking = (statuses.get(share.container) for share in facts.request.shares)
    return all(status is not None and status.has_started for status in asking)


class Assigner:
    def __init__(self, api: Api, pods: NodePods) -> None:
        self.marked = 0
        self._api, self._pods = api, pods
        self._due: dict[str, None] = {}
        self._loop = Loop(self._update)
        for uid in pods.pods:
            self._look(uid)
        pods.listeners.append(self._look)

    async def run(self) -> None:
        """For ever."""
        await self._loop.run()

    async def _update(self) -> bool:
        for uid in list(self._due):
            seen = self._pods.pods.get(uid)
            if seen is None or not is_due(seen) or await self._mark(seen):
                self._due.pop(uid, None)
        return not self._due

    def _look(self, uid: str) -> None:
        seen = self._pods.pods.get(uid)
        if seen is not None and is_due(seen):
            self._due[uid] = None
            self._loop.wake()

    async def _mark(self, seen: NodePod) -> bool:
        """Whether there is nothing left to do."""
        facts = seen.facts
        try:
            await self._api.patch_pod_annotations(
                facts.namespace, facts.name, facts.uid, {names.ALIYUN_ASSIGNED: "true"}
            )
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                return True
            logger.warn("cannot mark a pod that has started", pod=f"{facts.namespace}/{facts.name}", why=str(error))
            return False
        self._loop.retry.reset()  # one pod that cannot be marked must not delay the others
        self.marked += 1
        return True
