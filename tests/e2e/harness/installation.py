"""gpushare installed on the real node, as pods from deploy/: extender, `gpushare node` and policies.

Only kube-scheduler is a process, as on machines that run it from a unit file. The GPUs are those of a stand-in for
NVIDIA's library (tests/support/nvml) and can be changed while everything runs.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import aiohttp

from gpushare.core.facts import names
from gpushare.core.facts.model import Unit
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import NODE, Failed, NotReady
from tests.e2e.harness.images import SMALL
from tests.e2e.harness.kubelet import Node
from tests.support import wait
from tests.support.nvml import build, state
from tests.support.objects import quantity

Object = dict[str, Any]
T = TypeVar("T")
Installed = TypeVar("Installed", bound="Installation")
EXTENDER = "extender.yaml"
PIN, GUARD, OWN_NODE = "admission.yaml", "guard.yaml", "node-guard.yaml"
PATIENCE = 90.0  # a GPU is healthy again only after a minute


class Installation:
    """`component`: the files of deploy/ with `gpushare node`, to which `flags` are added; `switched_on`: what is a
    comment there and shall count. `policies`: the files with admission policies."""

    def __init__(
        self,
        node: Node,
        component: Sequence[str],
        policies: Sequence[str],
        unit: Unit,
        flags: Sequence[str] = (),
        switched_on: Sequence[str] = (),
    ) -> None:
        self.node, self.cluster, self.unit = node, node.cluster, unit
        self.gpus: list[int] = []  # units of each
        self._shown: list[int] = []  # MiB of each
        self._component, self._policies, self._flags = component, policies, flags
        self.switched_on = switched_on
        self._mock = state.Mock(node.machine.folder / "mock" / shipped.STATE)
        self._applied: list[Object] = []
        self._restarts = 0  # of the component, before it was killed

    async def start(self, gpus: Sequence[int]) -> None:
        await self.prepare(gpus)
        await self.until("policies are in force", self._policies_are_in_force)
        await self._apply([d for d in self._documents(EXTENDER) if d["kind"] not in shipped.RIGHTS])
        await self.install()
        await self._rolled_out(f"deployment/{shipped.EXTENDER}")

    async def prepare(self, gpus: Sequence[int]) -> None:
        """The GPUs, and the policies."""
        await asyncio.to_thread(build.build, self._mock.path.parent)
        self.show(gpus)
        for name in self._policies:
            await self._apply(shipped.documents(name))

    async def stop(self) -> None:
        """Removes everything. Rights go last, because a component that ends still writes something."""
        await self._delete([document for document in self._applied if document["kind"] in shipped.WORKLOADS])
        await self._delete(self._applied)
        self._applied.clear()

    # The component

    async def install(self) -> None:
        """Returns when the node has published its GPUs and kube-scheduler can see them."""
        await self._apply([document for name in self._component for document in self._documents(name)])
        await self._rolled_out(f"daemonset/{self.daemonset}")
        await self.until_published()

    async def uninstall(self) -> None:
        """Removes all traces of it from the node."""
        documents = [document for name in self._component for document in self._documents(name)]
        await self._delete([document for document in documents if document["kind"] in shipped.WORKLOADS])
        await self.cluster.kubectl("annotate", "node", NODE, f"{names.NODE_GPUS}-")

    async def replace_gpus(self, gpus: Sequence[int], unit: Unit | None = None) -> None:
        """Other GPUs in the machine, perhaps in another unit; the old ones are forgotten."""
        await self.uninstall()
        self.unit = unit or self.unit
        self.show(gpus)
        await self.install()

    async def count_in(self, unit: Unit) -> None:
        """Changes the unit in the manifest. Returns when the component is ready, in whichever unit it counts."""
        self.unit = unit
        self.show(self._shown)
        await self._apply([document for name in self._component for document in self._documents(name)])
        await self._rolled_out(f"daemonset/{self.daemonset}")

    async def have(self, gpus: Sequence[int], unit: Unit) -> None:
        """These GPUs, all healthy. Nothing is done if they are there already: it would take seconds."""
        if (list(gpus), unit) != (self._shown, self.unit):
            await self.replace_gpus(gpus, unit)
        await self.until_published()

    def show(self, mib: Sequence[int]) -> None:
        """These GPUs from now on."""
        self.gpus = [amount if self.unit == "MiB" else amount // 1024 for amount in mib]
        self._shown = list(mib)
        self._mock.show(*(state.card(number, amount) for number, amount in enumerate(mib)))

    def use(self, *processes: tuple[int, str], **used: int) -> None:
        """These processes use the GPUs from now on: the number of the GPU, and what `state.process` says of it."""
        lines: dict[int, list[str]] = {}
        for number, line in processes:
            lines.setdefault(number, []).append(line)
        self._mock.show(*(state.using(i, mib, *lines.get(i, ()), **used) for i, mib in enumerate(self._shown)))

    async def give_flags(self, flags: Sequence[str]) -> None:
        """Changes what is added to the component's words. Returns when it is ready."""
        self._flags = flags
        await self._apply([document for name in self._component for document in self._documents(name)])
        await self._rolled_out(f"daemonset/{self.daemonset}")

    async def have_flags(self, flags: Sequence[str]) -> None:
        """The same, and nothing is done if they are there already."""
        if tuple(flags) != tuple(self._flags):
            await self.give_flags(flags)

    def lose(self, number: int) -> None:
        """Removes this GPU; the indices of the others move up, as the driver does it."""
        self._mock.show(*(state.card(other, amount) for other, amount in enumerate(self._shown) if other != number))

    def forget(self) -> None:
        """The next test gets new ones."""
        self._shown = []

    def report(self, xid: int, number: int) -> None:
        """An error of this GPU, as the driver reports it."""
        self._mock.xid(xid, number)

    async def kill_component(self) -> None:
        """By force, as the kernel does when memory runs out. kubelet starts it again."""
        status = await self._component_status()
        self._restarts = status["restartCount"]
        await self.node.machine.kill_container(status["containerID"])

    async def until_restarted(self) -> None:
        async def restarted() -> bool:
            status = await self._component_status()
            return bool(status["restartCount"] > self._restarts and status["ready"])

        await self.until("the component is back", restarted)

    async def _component_status(self) -> Object:
        (status,) = (await self.component())["status"]["containerStatuses"]
        return dict(status)

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
        totals = [gpu["total"] for gpu in (await self.published())["gpus"]]
        return totals == self.gpus and await self.offers(sum(totals))

    async def offers(self, units: int) -> bool:
        """So much is there to be given out."""
        allocatable: Object = (await self.node.object())["status"]["allocatable"]
        return bool(allocatable.get(names.GPU_MEM, "0") == quantity(units))

    async def is_unhealthy(self, gpu: int) -> bool:
        """So the node says."""
        return not (await self.published())["gpus"][gpu]["ok"]

    async def until_published(self) -> None:
        await self.until("the node offers its memory", self.is_published)

    async def uuids(self) -> list[str]:
        return list(await self.totals())

    async def totals(self) -> dict[str, int]:
        """By uuid, in the order of their indices."""
        return {gpu["uuid"]: gpu["total"] for gpu in (await self.published())["gpus"]}

    # Applying and waiting

    def _documents(self, name: str) -> list[Object]:
        """As shipped, for this machine and in our unit."""
        given = shipped.documents(name, self.switched_on if name in self._component else ())
        documents = [shipped.for_test_machine(document, self._mock.path.parent) for document in given]
        counting = [shipped.counting_in(self.unit, document) for document in documents]
        for document in counting if name in self._component and self._flags else ():
            if document["kind"] == "DaemonSet":
                document["spec"]["template"]["spec"]["containers"][0]["args"] += self._flags
        return counting

    async def _apply(self, documents: list[Object]) -> None:
        self._applied += [document for document in documents if document not in self._applied]
        await self.cluster.apply(*documents)

    async def _delete(self, documents: list[Object]) -> None:
        """Their pods, too, are gone then."""
        if not documents:
            return
        self.node.keep_logs()
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        words = ("--ignore-not-found", "--cascade=foreground", f"--timeout={PATIENCE:.0f}s")
        await self.cluster.kubectl("delete", "-f", "-", *words, given=given)

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

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
        await wait.eventually_asked(condition, what, seconds)


@contextlib.asynccontextmanager
async def running(installation: Installed, gpus: Sequence[int], **scheduler: Any) -> AsyncIterator[Installed]:
    """With a scheduler, without which no pod of ours would get to the node; `scheduler`: what is different in its
    configuration."""
    async with installation.cluster.scheduler(**scheduler):
        try:
            await installation.start(gpus)
            yield installation
        finally:
            await installation.stop()


@contextlib.asynccontextmanager
async def installed(
    node: Node,
    gpus: Sequence[int],
    component: Sequence[str],
    policies: Sequence[str] = (),
    unit: Unit = "MiB",
    flags: Sequence[str] = (),
    switched_on: Sequence[str] = (),
) -> AsyncIterator[Installation]:
    async with running(Installation(node, component, policies, unit, flags, switched_on), gpus) as installation:
        yield installation


def for_module(node: Node, gpus: Sequence[int], component: Sequence[str], **words: Any) -> Iterator[Installation]:
    """`installed`, for a fixture of a whole file."""
    return held(installed(node, gpus, component, **words))


def held(context: contextlib.AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Open until the fixture of a whole file ends: tests come with an event loop each, it has one of its own."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        try:
            yield runner.run(stack.enter_async_context(context))
        finally:
            runner.run(stack.aclose())
