"""Marks pods whose containers have started: `ALIYUN_COM_GPU_MEM_ASSIGNED` becomes `true`, as with Aliyun's plugin.

The mark is for people and for Aliyun's tools. It changes nothing about the pod's memory, which counts from the binding
on.
"""

from gpushare.core.facts import names
from gpushare.core.facts.model import Request
from gpushare.kube import pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.loop import Loop
from gpushare.node.pods import NodePod, NodePods
from gpushare.obs import log

logger = log.get(__name__)


def is_due(node_pod: NodePod) -> bool:
    """Whether the pod was bound by an extender, is not marked, and every container that asks for GPUs has started. A
    pod without the annotation was bound by somebody else; a pod that has ended holds nothing."""
    facts = node_pod.facts
    if not isinstance(facts.request, Request) or facts.finished or facts.annotation(names.ALIYUN_ASSIGNED) != "false":
        return False
    statuses = node_pod.pod.statuses()
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
            node_pod = self._pods.pods.get(uid)
            if node_pod is None or not is_due(node_pod) or await self._mark(node_pod):
                self._due.pop(uid, None)
        return not self._due

    def _look(self, uid: str) -> None:
        node_pod = self._pods.pods.get(uid)
        if node_pod is not None and is_due(node_pod):
            self._due[uid] = None
            self._loop.wake()

    async def _mark(self, node_pod: NodePod) -> bool:
        """True if nothing is left to do."""
        facts = node_pod.facts
        try:
            await pod_requests.annotate(
                self._api, facts.namespace, facts.name, facts.uid, {names.ALIYUN_ASSIGNED: "true"}
            )
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                return True
            logger.warn("cannot mark a pod that has started", pod=f"{facts.namespace}/{facts.name}", why=str(error))
            return False
        self._loop.retry.reset()  # one pod that cannot be marked must not delay the others
        self.marked += 1
        return True
