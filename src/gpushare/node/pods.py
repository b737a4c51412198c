"""The pods of this node that ask for GPUs, as the API server shows them.

The sink of one watch (`fieldSelector=spec.nodeName=NODE`). Whoever looks after pods here reads `pods` and listens for
changes: the publisher (what is held on a sick GPU), the mark that a pod has started, the audit, the device plugin.
Pods that ask for no GPU are not kept, but for those that name GPUs all the same: `uncounted`, for the audit.
"""

from collections.abc import Callable, Set

import msgspec

from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import PodFacts

PATH = "/api/v1/pods"
NO_GPU = ("", "void", "none")  # what the container runtime takes for: none


class EnvVar(objects.EnvVar):
    value: str | None = None


class Container(objects.Container):
    env: list[EnvVar] | None = None  # type: ignore[assignment]  # only ever decoded and read

    def visible_devices(self) -> EnvVar | None:
        """The entry that says which GPUs it sees. Of several the last one counts."""
        return next((entry for entry in reversed(self.env or ()) if entry.name == names.VISIBLE_DEVICES), None)


class PodSpec(objects.PodSpec):
    containers: list[Container] | None = None  # type: ignore[assignment]
    init_containers: list[Container] | None = None  # type: ignore[assignment]
    ephemeral_containers: list[Container] | None = None


class Running(objects.Struct):
    started_at: str | None = None


class Terminated(objects.Struct):
    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(objects.Struct):
    """One of them is set; neither while the container waits."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(objects.Struct):
    name: str = ""
    container_id: str | None = msgspec.field(default=None, name="containerID")  # another one after each start
    state: ContainerState | None = None
    last_state: ContainerState | None = None

    @property
    def is_running(self) -> bool:
        return self.state is not None and self.state.running is not None

    @property
    def has_started(self) -> bool:
        """Now or before: one that waits to be started again has started."""
        return any(state is not None and (state.running or state.terminated) for state in (self.state, self.last_state))


class PodStatus(objects.PodStatus):
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class Pod(objects.Pod):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    def containers(self) -> list[Container]:
        """All of them, init containers first. No two of a pod have the same name."""
        spec = self.spec
        return [*(spec.init_containers or ()), *(spec.containers or ()), *(spec.ephemeral_containers or ())]

    def statuses(self) -> dict[str, ContainerStatus]:
        """Of each container, by its name; one that kubelet has not seen yet is missing."""
        status = self.status
        lists = (status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses)
        return {status.name: status for listed in lists for status in listed or ()}

    def names_gpus(self) -> bool:
        """A container says itself which GPUs it shall see, and may so have some; or takes it from somewhere else."""
        entries = (container.visible_devices() for container in self.containers())
        return any(e is not None and (e.value_from is not None or e.value not in (None, *NO_GPU)) for e in entries)


class NodePod(msgspec.Struct, frozen=True, gc=False):
    """A pod, reduced to what counts for decisions, and as it was sent."""

    facts: PodFacts
    pod: Pod


class NodePods:
    """`pods` by uid, in the order in which they were first seen. Listeners are told the uid after each change.

    `uncounted`: pods that ask for no GPU, have not ended, and name GPUs."""

    def __init__(self) -> None:
        self.pods: dict[str, NodePod] = {}
        self.uncounted: dict[str, NodePod] = {}
        self.listeners: list[Callable[[str], None]] = []
        self.uncounted_listeners: list[Callable[[], None]] = []

    def upsert(self, item: Pod) -> None:
        uid = item.metadata.uid
        seen = NodePod(request.facts(item, None), item)
        if seen.facts.request is None:
            self._upsert_uncounted(uid, seen)
            return
        self.pods[uid] = seen
        self._tell(uid)

    def _upsert_uncounted(self, uid: str, seen: NodePod) -> None:
        if seen.pod.status.phase in request.FINISHED or not seen.pod.names_gpus():
            self._forget_uncounted(uid)
            return
        self.uncounted[uid] = seen
        self._tell_uncounted()

    def remove(self, item: Pod) -> None:
        self._forget(item.metadata.uid)

    def relisted(self, kept: Set[str]) -> None:
        for uid in (self.pods.keys() | self.uncounted.keys()) - kept:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._forget_uncounted(uid)
        if self.pods.pop(uid, None) is not None:
            self._tell(uid)

    def _forget_uncounted(self, uid: str) -> None:
        if self.uncounted.pop(uid, None) is not None:
            self._tell_uncounted()

    def _tell_uncounted(self) -> None:
        for listener in self.uncounted_listeners:
            listener()

    def _tell(self, uid: str) -> None:
        for listener in self.listeners:
            listener(uid)


def params(node: str) -> dict[str, str]:
    """Of the pods of a cluster, only those bound to one node."""
    return {"fieldSelector": f"spec.nodeName={node}"}
