"""What the API server knows: which flags this machine's kube-scheduler runs with, who leads, and what became of a pod
that was made only so that the scheduler asks about it.

That pod asks for 0 of GPU memory: then kube-scheduler asks the extender, on any cluster, also where no GPU is free or
no GPU node is there yet. Its annotation makes the extender refuse it, with a sentence that kube-scheduler writes into
the pod. So nothing is ever placed, and the sentence proves that the scheduler asked our extender and was understood.
"""

from typing import Final, NamedTuple

import msgspec

from gpushare.core.facts import names, objects
from gpushare.install import flags
from gpushare.install.entries import FOLDER, Object
from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.requests import Request

LEASES: Final = resources.Resource("coordination.k8s.io", "v1", "leases")
MIRROR: Final = "kubernetes.io/config.mirror"
LABELS: Final = {"app": "gpushare", "component": "install-scheduler"}
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


class Question:
    """The pod that is only asked about."""

    def __init__(self, api: Api, namespace: str, scheduler: str) -> None:
        self._api, self._namespace, self._scheduler, self._name = api, namespace, scheduler, ""

    async def try_out(self) -> str:
        """The name of the scheduler that would place it. Nothing is made, but rights and admission are those of the
        real one."""
        path = resources.PODS.one_namespace(self._namespace)
        request = Request("POST", path, {"dryRun": "All"}, self._pod())
        return (await self._api.fetch(request, objects.Pod)).spec.scheduler_name or ""

    async def ask(self) -> None:
        made = await self._api.fetch(requests.create(resources.PODS, self._namespace, self._pod()), objects.Pod)
        self._name = made.metadata.name

    async def answer(self) -> tuple[bool, str]:
        """Whether the extender was asked, and if not, what the scheduler says. Raises Placed if it was bound."""
        pod = await self._api.fetch(requests.read(resources.PODS, self._namespace, self._name), objects.Pod)
        if pod.spec.node_name:
            raise Placed(pod.spec.node_name)
        condition = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
        said = (condition.message if condition is not None else None) or ""
        return names.ASKED in said, said

    async def end(self) -> None:
        """Deletes it, and those of earlier runs that were killed."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in LABELS.items())}
        async for page, _ in self._api.list_pages(resources.PODS, objects.Pod, namespace=self._namespace, query=query):
            for pod in page:
                if names.ONLY_ASKED in (pod.metadata.annotations or ()):
                    await self._delete(pod.metadata.name)

    async def _delete(self, name: str) -> None:
        path = resources.PODS.item(self._namespace, name)
        try:
            await self._api.send(Request("DELETE", path, {"gracePeriodSeconds": "0"}))
        except ApiError as error:
            if error.status != 404:
                raise

    def _pod(self) -> Object:
        unprivileged = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container = {
            "name": "asked",
            "image": "gpushare-only-asked",  # there is none of that name, and nothing would be pulled
            "imagePullPolicy": "Never",
            "resources": {"limits": {names.GPU_MEM: "0"}},
            "securityContext": unprivileged,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "gpushare-only-asked-",
                "labels": LABELS,
                "annotations": {names.ONLY_ASKED: "true"},
            },
            "spec": {
                "schedulerName": self._scheduler,
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "tolerations": [{"operator": "Exists"}],  # so that some node is left to ask about
                "securityContext": {
                    "runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container],
            },
        }  # fmt: skip


class Placed(Exception):
    """The pod was bound: nobody asked the extender. The text is the node."""
