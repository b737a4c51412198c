"""The pods of this node that ask for GPUs, as the API server shows them.

Filled by one watch (`fieldSelector=spec.nodeName=NODE`). Publisher, assigner, audit and device plugin read `pods` and
are called after each change. Pods that ask for no GPU are left out, except those that name GPUs in their env: these are
`uncounted`, for the audit.
"""

from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

import msgspec

from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import PodFacts

NO_GPU = ("", "void", "none")  # with these values the container runtime shows no GPU
# The labels of NVIDIA's exporter, as its operator and its own chart write them.
DCGM_EXPORTER = {("app", "nvidia-dcgm-exporter"), ("app", "dcgm-exporter"), ("app.kubernetes.io/name", "dcgm-exporter")}


class EnvVar(objects.EnvVar):
    value: str | None = None


class Container(objects.Container):
    env: list[EnvVar] | None = None  # type: ignore[assignment]  # only ever decoded and read

    def visible_devices(self) -> EnvVar | None:
        """The env entry that says which GPUs it sees. If there are several, the last one counts."""
        return next((entry for entry in reversed(self.env or ()) if entry.name == names.VISIBLE_DEVICES), None)


class PodSpec(objects.PodSpec):
    priority_class_name: str | None = None
    containers: list[Container] | None = None  # type: ignore[assignment]
    init_containers: list[Container] | None = None  # type: ignore[assignment]
    ephemeral_containers: list[Container] | None = None


class Running(objects.Struct):
    started_at: str | None = None


class Terminated(objects.Struct):
    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(objects.Struct):
    """One of the two is set, or none while the container waits."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(objects.Struct):
    name: str = ""
    container_id: str | None = msgspec.field(default=None, name="containerID")  # changes with each start
    state: ContainerState | None = None
    last_state: ContainerState | None = None

    @property
    def id(self) -> str:
        """Without the prefix of the container runtime; empty: it has not started."""
        return (self.container_id or "").rpartition("://")[2]

    @property
    def is_running(self) -> bool:
        return self.state is not None and self.state.running is not None

    @property
    def has_started(self) -> bool:
        """Now or before: a container that waits for its restart has started."""
        return any(state is not None and (state.running or state.terminated) for state in (self.state, self.last_state))


class PodStatus(objects.PodStatus):
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


STATIC = "kubernetes.io/config.mirror"  # on the copy of a static pod: the uid that kubelet knows it by


class NamedContainer(NamedTuple):
    """A container of a pod that we do not count: enough to name it if its processes use a GPU."""

    namespace: str
    pod: str
    container: str
    id: str  # without the prefix of the container runtime
    asks: tuple[str, ...]  # resources that are not Kubernetes' own


class Pod(objects.Pod):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    def containers(self) -> list[Container]:
        """All of them, init containers first. No two of a pod have the same name."""
        spec = self.spec
        return [*(spec.init_containers or ()), *(spec.containers or ()), *(spec.ephemeral_containers or ())]

    @property
    def static_uid(self) -> str:
        """The uid that kubelet knows it by if it is a static pod, of which the API server has a copy; else empty."""
        return (self.metadata.annotations or {}).get(STATIC, "")

    def statuses(self) -> dict[str, ContainerStatus]:
        """By container name. A container that kubelet has not seen yet is missing."""
        status = self.status
        lists = (status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses)
        return {status.name: status for listed in lists for status in listed or ()}

    def asking_device_plugins(self) -> Iterator[NamedContainer]:
        """Its containers that have started and ask for something that is not Kubernetes' own."""
        statuses = self.statuses()
        for container in self.containers():
            asks = tuple([name for name in (container.resources and container.resources.limits) or () if "/" in name])
            if asks and container.name in statuses and (found := statuses[container.name].id):
                yield NamedContainer(self.metadata.namespace, self.metadata.name, container.name, found, asks)

    def names_gpus(self) -> bool:
        """Whether a container says in its own env which GPUs it sees, directly or from another source."""
        entries = (container.visible_devices() for container in self.containers())
        return any(e is not None and (e.value_from is not None or e.value not in (None, *NO_GPU)) for e in entries)


class NodePod(msgspec.Struct, frozen=True, gc=False):
    """A pod: the facts that decisions need, and the object as it was sent."""

    facts: PodFacts
    pod: Pod


class NodePods:
    """`pods` by uid, in the order in which they were first seen. Listeners get the uid after each change.

    `uncounted`: pods that ask for no GPU, name GPUs in their env, and have not ended. `sold`: the containers of pods
    that ask for something that device plugins sell and we do not count, by the uid of the pod. `dcgm_exporters`: the
    uids of NVIDIA's exporter on this node, which exports the same GPUs."""

    def __init__(self) -> None:
        self.pods: dict[str, NodePod] = {}
        self.sold: dict[str, tuple[NamedContainer, ...]] = {}
        self.uncounted: dict[str, NodePod] = {}
        self.dcgm_exporters: set[str] = set()
        self._kubelets_uids: dict[str, str] = {}  # of all pods of this node, by uid
        self.listeners: list[Callable[[str], None]] = []
        self.uncounted_listeners: list[Callable[[], None]] = []

    def by_kubelets_uid(self) -> dict[str, str]:
        """The uids of all pods of this node, also those without a GPU. Nobody's own uid is taken by a static pod."""
        kubelets = self._kubelets_uids
        return {theirs: uid for uid, theirs in kubelets.items()} | {
            uid: uid for uid in kubelets if kubelets[uid] == uid
        }

    def upsert(self, item: Pod) -> None:
        uid = item.metadata.uid
        self._kubelets_uids[uid] = item.static_uid or uid
        node_pod = NodePod(request.facts(item, None), item)
        self.dcgm_exporters.discard(uid)
        if item.status.phase == "Running" and DCGM_EXPORTER & (item.metadata.labels or {}).items():
            self.dcgm_exporters.add(uid)
        if node_pod.facts.request is None:
            self._upsert_sold(uid, item)
            self._upsert_uncounted(uid, node_pod)
            return
        self.pods[uid] = node_pod
        self._notify(uid)

    def _upsert_sold(self, uid: str, pod: Pod) -> None:
        ended = pod.status.phase in objects.FINISHED
        if containers := () if ended else tuple(pod.asking_device_plugins()):
            self.sold[uid] = containers
        else:
            self.sold.pop(uid, None)

    def _upsert_uncounted(self, uid: str, node_pod: NodePod) -> None:
        if node_pod.pod.status.phase in objects.FINISHED or not node_pod.pod.names_gpus():
            self._forget_uncounted(uid)
            return
        self.uncounted[uid] = node_pod
        self._notify_uncounted()

    def remove(self, item: Pod) -> None:
        self._forget(item.metadata.uid)

    def relisted(self, kept: Set[str]) -> None:
        for uid in self._kubelets_uids.keys() - kept:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._kubelets_uids.pop(uid, None)
        self.dcgm_exporters.discard(uid)
        self._forget_uncounted(uid)
        self.sold.pop(uid, None)
        if self.pods.pop(uid, None) is not None:
            self._notify(uid)

    def _forget_uncounted(self, uid: str) -> None:
        if self.uncounted.pop(uid, None) is not None:
            self._notify_uncounted()

    def _notify_uncounted(self) -> None:
        for listener in self.uncounted_listeners:
            listener()

    def _notify(self, uid: str) -> None:
        for listener in self.listeners:
            listener(uid)


def query(node: str) -> dict[str, str]:
    """Selects the pods that are bound to this node."""
    return {"fieldSelector": f"spec.nodeName={node}"}
