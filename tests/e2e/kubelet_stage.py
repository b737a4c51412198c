"""All of gpushare on the real node, as pods from deploy/: the extender, the component that publishes GPUs, policies.

Only kube-scheduler is a process, as on machines that run it from a unit file. The GPUs are those of a stand-in for
NVIDIA's library (tests/gpu/nvml) and can be changed while everything runs. Made by `staged`, for the tests of one file
and for `play`.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import aiohttp

from gpushare.core import names
from tests.e2e import shipped
from tests.e2e.cluster import NODE, Failed, NotReady
from tests.e2e.containers_images import SMALL
from tests.e2e.kubelet import Node
from tests.gpu.nvml import build, state
from tests.scenarios.objects import quantity

Object = dict[str, Any]
EXTENDER = "extender.yaml"
PIN, GUARD = "admission.yaml", "guard.yaml"
PATIENCE = 60.0


class Stage:
    """`component` are the files of deploy/ that make GPUs of the node known; `policies` are in force meanwhile."""

    def __init__(self, node: Node, component: Sequence[str], policies: Sequence[str]) -> None:
        self.node, self.cluster = node, node.cluster
        self.gpus: list[int] = []  # MiB of each
        self._component, self._policies = component, policies
        self._mock = state.Mock(node.machine.folder / "mock" / shipped.STATE)
        self._applied: list[Object] = []

    async def start(self, gpus: Sequence[int]) -> None:
        await asyncio.to_thread(build.build, self._mock.path.parent)
        self.show(gpus)
        for name in self._policies:
            await self._apply(shipped.documents(name))
        await self._until("policies are in force", self._policies_are_in_force)
        await self._apply([d for d in self._documents(EXTENDER) if d["kind"] not in shipped.RIGHTS])
        await self.install()
        await self._rolled_out(f"deployment/{shipped.EXTENDER}")

    async def stop(self) -> None:
        """Nothing of it is left for others."""
        for document in reversed(self._applied):
            await self._delete(document)
        self._applied.clear()

    # The component

    async def install(self) -> None:
        """Returns when the node says what it has, and kube-scheduler can see it."""
        await self._apply([document for name in self._component for document in self._documents(name)])
        await self._rolled_out(f"daemonset/{self.daemonset}")
        await self.until_published()

    async def uninstall(self) -> None:
        """As if it had never been here."""
        for name in self._component:
            for document in self._documents(name):
                if document["kind"] in shipped.WORKLOADS:
                    await self._delete(document)
        await self.cluster.kubectl("annotate", "node", NODE, f"{names.NODE_GPUS}-")

    async def replace_gpus(self, gpus: Sequence[int]) -> None:
        """Other cards in the machine: nobody remembers the old ones."""
        await self.uninstall()
        self.show(gpus)
        await self.install()

    def show(self, gpus: Sequence[int], *more: str) -> None:
        """These GPUs from now on, by their MiB; `more` lines are about the last one."""
        self.gpus = list(gpus)
        last = len(gpus) - 1
        self._mock.show(*(state.card(i, mib, *(more if i == last else ())) for i, mib in enumerate(gpus)))

    async def kill_component(self) -> None:
        """By force, as the kernel does when memory runs out. kubelet starts it again."""
        (status,) = (await self.component())["status"]["containerStatuses"]
        await self.node.machine.kill_container(status["containerID"])

    async def until_restarted(self) -> None:
        async def restarted() -> bool:
            (status,) = (await self.component())["status"]["containerStatuses"]
            return bool(status["restartCount"] and status["ready"])

        await self._until("the component is back", restarted)

    async def component(self) -> Object:
        """Its pod."""
        pods = await self.cluster.get(f"/api/v1/namespaces/{shipped.NAMESPACE}/pods?fieldSelector=spec.nodeName={NODE}")
        (pod,) = (p for p in pods["items"] if p["metadata"]["ownerReferences"][0]["name"] == self.daemonset)
        return dict(pod)

    @property
    def daemonset(self) -> str:
        (found,) = (
            document["metadata"]["name"]
            for name in self._component
            for document in shipped.documents(name)
            if document["kind"] == "DaemonSet"
        )
        return str(found)

    # What the node says

    async def published(self) -> Object:
        """The annotation by which the node makes its GPUs known."""
        node = await self.node.object()
        published: Object = json.loads(node["metadata"]["annotations"][names.NODE_GPUS])
        return published

    async def is_published(self) -> bool:
        """All its memory is there to be given out."""
        node = await self.node.object()
        if names.NODE_GPUS not in node["metadata"].get("annotations", {}):
            return False
        offered = node["status"]["allocatable"].get(names.GPU_MEM, "0")
        totals = [gpu["total"] for gpu in (await self.published())["gpus"]]
        return len(totals) == len(self.gpus) and quantity(sum(totals)) == offered

    async def until_published(self) -> None:
        await self._until("the node offers its memory", self.is_published)

    async def uuids(self) -> list[str]:
        return [gpu["uuid"] for gpu in (await self.published())["gpus"]]

    # Applying and waiting

    def _documents(self, name: str) -> list[Object]:
        return [shipped.for_test_machine(document, self._mock.path.parent) for document in shipped.documents(name)]

    async def _apply(self, documents: list[Object]) -> None:
        self._applied += [document for document in documents if document not in self._applied]
        await self.cluster.apply(*documents)

    async def _delete(self, document: Object) -> None:
        """Its pods, too, are gone then."""
        metadata = document["metadata"]
        where = ["--namespace", metadata["namespace"]] if "namespace" in metadata else []
        what = f"{document['kind']}/{metadata['name']}"
        await self.cluster.kubectl("delete", *where, what, "--ignore-not-found", "--cascade=foreground")

    async def _rolled_out(self, what: str) -> None:
        where = ("--namespace", shipped.NAMESPACE, what)
        try:
            await self.cluster.kubectl("rollout", "status", *where, f"--timeout={PATIENCE:.0f}s")
        except Failed as failed:
            raise NotReady(f"{failed}\nits log:\n{await self.cluster.kubectl('logs', *where, '--tail=20')}") from None

    async def _policies_are_in_force(self) -> bool:
        container = {"name": "main", "image": SMALL, "resources": {"limits": {names.GPU_MEM: "1"}}}
        pod: Object = {"metadata": {"name": "trial"}, "spec": {"containers": [container]}}
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        made = await self.cluster.call("POST", path, pod)
        pinned = bool(made["spec"]["containers"][0].get("env"))
        pod["metadata"]["annotations"] = {names.ALIYUN_IDX: "0"}
        guarded = False
        try:
            await self.cluster.call("POST", path, pod)
        except aiohttp.ClientResponseError as refused:
            guarded = refused.status == 403
        return (pinned, guarded) == (PIN in self._policies, GUARD in self._policies)

    async def _until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        patience_ends = time.monotonic() + PATIENCE
        while not await condition():
            assert time.monotonic() < patience_ends, f"not within {PATIENCE:.0f} s: {what}"
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def staged(
    node: Node, gpus: Sequence[int], component: Sequence[str], policies: Sequence[str]
) -> AsyncIterator[Stage]:
    """With a scheduler, without which no pod of ours would get to the node."""
    stage = Stage(node, component, policies)
    async with node.cluster.scheduler():
        try:
            await stage.start(gpus)
            yield stage
        finally:
            await stage.stop()
