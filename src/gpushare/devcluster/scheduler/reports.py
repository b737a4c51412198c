"""What the stand-in scheduler writes about pods: the condition PodScheduled=False, and the events of kube-scheduler.

Neither may fail a cycle: a condition that could not be written is written at the next refusal. It is written as
kube-scheduler does, by a strategic merge patch of the status.
"""

from datetime import UTC, datetime

from gpushare.core.facts.intree import Pod
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.events import Recorder
from gpushare.obs import log

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"

logger = log.get(__name__)


class Reports:
    """`name`: of the scheduler."""

    def __init__(self, api: client.Api, name: str) -> None:
        self._api = api
        self._events = Recorder(api, component=name)

    async def run(self) -> None:
        await self._events.run()

    def scheduled(self, pod: Pod, node: str) -> None:
        message = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"
        self._record(pod, "Normal", "Scheduled", message)

    def failed(self, pod: Pod, message: str) -> None:
        self._record(pod, "Warning", "FailedScheduling", message)

    async def put_condition(self, pod: Pod, reason: str, message: str, *, first: bool) -> bool:
        """Whether it was written. `first`: the pod was not refused before, so the condition begins now."""
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        if first:
            condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = pod.metadata
        request = requests.patch_status(
            resources.PODS, meta.namespace, meta.name, {"conditions": [condition]},
            content_type=requests.STRATEGIC, uid=meta.uid,
        )  # fmt: skip
        try:
            await self._api.send(request)
        except ApiError:
            return False  # the pod is gone, or another has its name
        except KubeError as error:
            logger.warn("condition not written", pod=f"{meta.namespace}/{meta.name}", why=str(error))
            return False
        return True

    def _record(self, pod: Pod, type: str, reason: str, message: str) -> None:
        meta = pod.metadata
        self._events.record(
            kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid, type=type, reason=reason,
            message=message,
        )  # fmt: skip
