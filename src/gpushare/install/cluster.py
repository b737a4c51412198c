"""What the API server knows of the kube-schedulers: which flags they run with, how they are, and who leads."""

from typing import Final, NamedTuple

import msgspec

from gpushare.core.facts import objects
from gpushare.install import flags
from gpushare.install.entries import FOLDER
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.requests import Request

LEASES: Final = resources.Resource("coordination.k8s.io", "v1", "leases")
MIRROR: Final = "kubernetes.io/config.mirror"
LOG_LINES: Final = "5"


class Terminated(objects.Struct):
    exit_code: int = 0
    reason: str | None = None


class Waiting(objects.Struct):
    reason: str | None = None
    message: str | None = None


class State(objects.Struct):
    running: dict[str, object] | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(objects.Struct):
    ready: bool = False
    state: State = msgspec.field(default_factory=State)
    last_state: State = msgspec.field(default_factory=State)


class Status(objects.Struct):
    container_statuses: list[ContainerStatus] | None = None


class Container(objects.Struct):
    command: list[str] | None = None
    args: list[str] | None = None


class Spec(objects.Struct):
    node_name: str | None = None
    containers: list[Container] | None = None


class SchedulerPod(objects.Struct):
    """The pod in the API server that mirrors a static pod."""

    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def words(self) -> list[str]:
        return [word for one in self.spec.containers or () for word in (*(one.command or ()), *(one.args or ()))]

    @property
    def asks_extender(self) -> bool:
        """By its flags: they name a configuration of ours."""
        named = (flags.value(self.words, flag) for flag in ("config", "policy-config-file"))
        return any(value is not None and value.startswith(f"{FOLDER}/") for value in named)

    def trouble(self) -> str:
        """Why it does not run; empty if it does."""
        statuses = self.status.container_statuses or []
        if not statuses:
            return "kubelet has not started it yet"
        (status,) = statuses[:1]
        ended = status.state.terminated or (status.last_state.terminated if not status.state.running else None)
        if ended is not None:
            return f"it ended with exit code {ended.exit_code}"
        if status.state.running is None:
            waiting = status.state.waiting or Waiting()
            return waiting.message or waiting.reason or "it does not run yet"
        return "" if status.ready else "it is not ready yet"


class LeaseSpec(objects.Struct):
    holder_identity: str | None = None
    renew_time: str | None = None


class Lease(objects.Struct):
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class Leader(NamedTuple):
    node: str
    asks_extender: bool


class Schedulers:
    """The kube-schedulers of the control plane. `name` is the static pod's, without the node's name behind it; `lease`:
    namespace and name of what they lead by."""

    def __init__(self, api: Api, namespace: str, name: str, node: str, lease: tuple[str, str]) -> None:
        self._api, self._namespace, self._name, self.node, self._lease = api, namespace, name, node, lease
        self._renewed: tuple[str, str] | None = None  # by whom and when, as seen first

    @property
    def pod_name(self) -> str:
        return f"{self._name}-{self.node}"

    async def here(self) -> SchedulerPod | None:
        return await self._api.find(requests.read(resources.PODS, self._namespace, self.pod_name), SchedulerPod)

    async def all(self) -> list[SchedulerPod]:
        """Also those of other machines."""
        found = list[SchedulerPod]()
        async for page, _ in self._api.list_pages(resources.PODS, SchedulerPod, namespace=self._namespace):
            found += [
                pod
                for pod in page
                if MIRROR in (pod.metadata.annotations or ()) and pod.metadata.name.startswith(f"{self._name}-")
            ]
        return found

    async def leader(self) -> Leader | None:
        """Who leads; None: not known yet. A lease may still name one that has ended: only one that renews it leads."""
        pods = await self.all()
        if len(pods) == 1:
            return Leader(pods[0].spec.node_name or "", pods[0].asks_extender)
        lease = await self._api.find(requests.read(LEASES, *self._lease), Lease)
        if lease is None:  # they do not elect a leader: each of them schedules
            return Leader(self.node, True)
        holder, renewed = lease.spec.holder_identity or "", lease.spec.renew_time or ""
        before, self._renewed = self._renewed or (holder, renewed), (holder, renewed)
        if not holder or before[0] != holder or before[1] == renewed:
            return None
        host = holder.rpartition("_")[0] or holder
        pod = next((pod for pod in pods if host.lower() == (pod.spec.node_name or "").lower()), None)
        return Leader(host, False) if pod is None else Leader(pod.spec.node_name or host, pod.asks_extender)

    async def last_words(self) -> str:
        """The end of its log, if we may read it."""
        path = resources.PODS.item(self._namespace, self.pod_name, "log")
        try:
            log = await self._api.send(Request("GET", path, {"tailLines": LOG_LINES}))
        except KubeError:
            return ""
        lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else ""
