"""The world of one test on the real node: pods that run, what their containers see, and what must be true of them.

All pods print their environment when they start, so that each container's GPUs are read from the container itself. At
the end of a test everything that still runs is checked, then it is deleted, and no GPU may stay in use.
"""

import asyncio
import collections
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping

from gpushare.core.explain import event_texts
from gpushare.core.facts import kinds, names
from tests.e2e.harness import objects, shipped
from tests.e2e.harness.cluster import NODE
from tests.e2e.harness.images import SMALL
from tests.e2e.harness.installation import Installation
from tests.e2e.harness.world import World, gpus_of
from tests.support import pod_watch
from tests.support.api_client import Api
from tests.support.objects import Object

EXAMPLES = shipped.DEPLOY.parent / "examples"
RUNNING_SECONDS = 60.0
GONE_SECONDS = 60.0
FREE_SECONDS = 20.0
TRUE_SECONDS = 20.0
GRACE = 1  # seconds; nobody here needs them
STAY = ["sh", "-c", "env; trap 'exit 0' TERM; sleep infinity & wait"]
END = ["sh", "-c", "env"]


class NodeWorld(World):
    """Pods are written in the words of a scenario."""

    def __init__(self, installation: Installation, api: Api, shown: pod_watch.PodWatch) -> None:
        super().__init__(installation.cluster, api, shown)
        self.installation, self.node = installation, installation.node
        self._lives: list[tuple[str, bool]] = []  # uids in the order in which they began to run, and ended
        self._used: dict[str, dict[str, int]] = {}  # by uid, what its containers have, by what is shared
        self._totals: dict[str, int] = {}  # by what is shared: the units of a GPU, by its uuid, and its MPS slots
        shown.listeners.append(self._remember)

    async def run(self, *pods: Object) -> None:
        """Until each of them runs."""
        await self.make_pods(*pods)
        await self.until_running(*(words["name"] for words in pods))

    async def until_running(self, *pods: str, seconds: float = RUNNING_SECONDS) -> None:
        await self.until_taken(*pods, seconds=seconds)
        for name in pods:
            assert not has_failed(pod := self.watch.pods[name]), f"{name}: {pod['status']}"

    async def until_taken(self, *pods: str, seconds: float = RUNNING_SECONDS) -> None:
        """Until each of them runs, or kubelet has refused it for good."""

        def taken(name: str) -> bool:
            return is_running(pod := self.watch.pods.get(name)) or (pod is not None and has_failed(pod))

        await self.watch.until(f"{', '.join(pods)} run", lambda: all(map(taken, pods)), seconds)

    async def delete(self, *pods: str) -> None:
        """Deletes them, with some seconds of grace."""
        for pod in pods:
            answer = await self.api.call("DELETE", f"{self.api.pods}/{pod}", {"gracePeriodSeconds": GRACE})
            assert answer.code in (200, 404), answer.body
        await self.watch.until("gone", lambda: not set(pods) & self.watch.pods.keys(), GONE_SECONDS)

    async def environment(self, pod: str, container: str = "main") -> dict[str, str]:
        """The env of the container's first process, which prints it when it starts."""
        patience_ends = time.monotonic() + TRUE_SECONDS
        while True:
            answer = await self.api.get(f"{self.api.pods}/{pod}/log", container=container)
            assert answer.code == 200, answer.body
            if b"PATH=" in answer.body:
                return dict(line.split("=", 1) for line in answer.body.decode().splitlines() if "=" in line)
            assert time.monotonic() < patience_ends, f"{pod}: {container} printed {answer.body[:200]!r}"
            await asyncio.sleep(0.05)

    async def sees(self, pod: str, container: str = "main") -> list[str]:
        """The GPUs that a container sees."""
        told = (await self.environment(pod, container)).get(names.VISIBLE_DEVICES, "")
        return [uuid for uuid in told.split(",") if uuid]

    def containers_of(self, *pods: str) -> list[str]:
        """Their ids. A container that was restarted has a new one."""
        return [status["containerID"] for pod in pods for status in statuses(self.watch.pods[pod])]

    async def kill_container(self, pod: str) -> None:
        """Kills the container of a pod that has one. Returns when kubelet has restarted it."""
        (container,) = self.containers_of(pod)
        await self.node.machine.kill_container(container)
        await self.watch.until("started again", lambda: self._has_restarted(pod), RUNNING_SECONDS)
        await self.until_running(pod)

    def _has_restarted(self, pod: str) -> bool:
        return any(status["restartCount"] for status in statuses(self.watch.pods[pod]))

    # What must be true

    async def check(self) -> None:
        """Checks all pods that run: their annotations name what their containers see."""
        for name, pod in list(self.watch.pods.items()):
            if is_running(pod) and not is_ending(pod) and is_placed(pod):
                await self.check_pod(name)

    async def check_pod(self, name: str) -> None:
        """Checks that its annotations name what its containers see. With a device plugin that takes a moment."""
        patience_ends = time.monotonic() + TRUE_SECONDS
        while untrue := await self._untrue(name):
            assert time.monotonic() < patience_ends, f"{name}: {untrue}"
            await asyncio.sleep(0.1)

    async def _untrue(self, name: str) -> str:
        uuids, pod = await self.installation.uuids(), self.watch.pods[name]
        self._totals |= await self.installation.totals()
        slots: int = (await self.installation.published()).get("slots", 0)
        self._totals |= dict.fromkeys(map(slots_of, uuids), slots)
        annotations, used = pod["metadata"]["annotations"], collections.Counter[str]()
        allocation = json.loads(annotations[names.ALLOCATION])
        for position, container in enumerate(pod["spec"]["containers"]):
            if asks(container):
                seen, said = await self.sees(name, container["name"]), allocation.get(str(position), {})
                if set(seen) != {uuids[int(gpu)] for gpu in said}:
                    return f"container {container['name']} sees {seen}, the annotation says {said}"
                used.update({uuids[int(gpu)]: units for gpu, units in said.items()})
                if names.MPS_GPU in container["resources"]["limits"]:
                    used.update(map(slots_of, seen))
        for container in filter(asks, pod["spec"].get("initContainers", ())):
            seen, said = await self.sees(name, container["name"]), gpus_of(pod)
            if not seen or not set(seen) <= {uuids[gpu] for gpu in said}:
                return f"init container {container['name']} sees {seen}, the annotation says {said}"
        self._used[pod["metadata"]["uid"]] = dict(used)
        return "" if annotations.get(names.ALIYUN_ASSIGNED) == "true" else "it is not said to be assigned"

    async def until_said(self, name: str, has: dict[int, int]) -> None:
        """Waits until its annotations say that it has these units, by GPU."""
        await self.watch.until(f"{name} has {has}", lambda: gpus_of(self.watch.pods[name]) == has, TRUE_SECONDS)

    def check_history(self) -> None:
        """Checks that no GPU was over-committed at any time."""
        given = collections.Counter[str]()
        for uid, begins in self._lives:
            for uuid, units in self._used.get(uid, {}).items():
                given[uuid] += units if begins else -units
                assert given[uuid] <= self._totals[uuid], f"{uuid} had given {given[uuid]} of {self._totals[uuid]}"

    async def until_free(self) -> None:
        """Waits until extender and `gpushare node` say that nothing is in use and nothing is wrong."""
        patience_ends = time.monotonic() + FREE_SECONDS
        while left := [*await self._counted_by_extender(), *await self._counted_on_node()]:
            assert time.monotonic() < patience_ends, f"nobody is here any more, but {', '.join(left)}"
            await asyncio.sleep(0.1)

    async def _counted_by_extender(self) -> list[str]:
        (node,) = (node for node in (await self.ask("inspect"))["nodes"] if node["name"] == NODE)
        return [f"the extender counts {g['usedGPU']} on GPU {g['id']}" for g in node["devs"] if g["usedGPU"]]

    async def _counted_on_node(self) -> list[str]:
        shown = await self.metrics(shipped.NODE_PORT)
        found = {code: shown("gpushare_node_audit", found=code) for code in event_texts.AUDIT_CODES}
        held = {
            f"GPU {i}": shown("gpushare_gpu_memory_granted_bytes", node=NODE, gpu=str(i), UUID=uuid)
            for i, uuid in enumerate(await self.installation.uuids())
        }
        return [f"the node says {what}: {count:.0f}" for what, count in (held | found).items() if count]

    def _remember(self, type_: str, pod: Object) -> None:
        uid, running = pod["metadata"]["uid"], pod["status"]["phase"] == "Running" and type_ != "DELETED"
        runs = (uid, True) in self._lives and (uid, False) not in self._lives
        if running != runs:
            self._lives.append((uid, running))

    async def clean_up(self) -> None:
        """Deletes all pods and waits until no GPU is in use. The history is forgotten: the GPUs may change now."""
        await self.delete(*self.watch.pods)
        await self.until_free()
        self.check_history()
        self._lives.clear()
        self._used.clear()
        self._totals.clear()

    def pod_of(self, words: Object) -> Object:
        made = objects.pod(**words)
        spec = made["spec"]
        spec["terminationGracePeriodSeconds"] = GRACE
        for container in (*spec["containers"], *spec["initContainers"]):
            ends = container in spec["initContainers"] and "restartPolicy" not in container
            container |= {"image": SMALL, "command": END if ends else STAY}
        return made


@contextlib.asynccontextmanager
async def open_world(installation: Installation, api: Api) -> AsyncIterator[NodeWorld]:
    shown = pod_watch.PodWatch(api)
    watching = asyncio.create_task(shown.run())
    try:
        world = NodeWorld(installation, api, shown)
        yield world
        await world.check()
        await world.clean_up()
        assert not watching.done(), watching.exception()
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


@contextlib.asynccontextmanager
async def deployment(world: NodeWorld) -> AsyncIterator[dict[str, Object]]:
    """The Deployment of the README and its pods. Checks with `kubectl exec` that each sees its GPU."""
    where = ("--namespace", world.api.namespace)
    async with _applied(world, (EXAMPLES / "01-deployment.yaml").read_text()):
        uuids, pods = await world.installation.uuids(), dict(world.watch.pods)
        for name in pods:
            shown = await world.cluster.kubectl("exec", *where, name, "--", "env")
            told = dict(line.split("=", 1) for line in shown.splitlines())
            gpu = uuids.index(told[names.VISIBLE_DEVICES])
            assert told["ALIYUN_COM_GPU_MEM_IDX"] == str(gpu)
            await world.until_said(name, {gpu: int(told["ALIYUN_COM_GPU_MEM_CONTAINER"])})
        yield pods
    await world.delete(*pods)  # they print nothing that could be checked again


@contextlib.asynccontextmanager
async def replicas(world: NodeWorld, count: int, words: Object) -> AsyncIterator[None]:
    """A Deployment of such pods, all of which run."""
    pod, labels = world.pod_of(words), {"app": words["name"]}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": words["name"]}}
    async with _applied(world, json.dumps({**kind, "spec": spec})):
        yield


@contextlib.asynccontextmanager
async def _applied(world: NodeWorld, manifest: str) -> AsyncIterator[None]:
    """Leaves its pods for `NodeWorld` to delete: their own grace period may be too long."""
    where = ("--namespace", world.api.namespace)
    rolled_out = ("rollout", "status", *where, f"--timeout={RUNNING_SECONDS:.0f}s")
    await world.cluster.kubectl("apply", *where, "-f", "-", given=manifest)
    try:
        await world.cluster.kubectl(*rolled_out, "-f", "-", given=manifest)
        yield
    finally:
        for kind in ("deployment", "replicaset"):
            await world.cluster.kubectl("delete", *where, kind, "--all", "--cascade=orphan")


def is_running(pod: Mapping[str, Object] | None) -> bool:
    """All its containers run."""
    return pod is not None and pod["status"]["phase"] == "Running" and all(s["ready"] for s in statuses(pod))


def has_failed(pod: Mapping[str, Object]) -> bool:
    """kubelet has refused it for good."""
    return bool(pod["status"]["phase"] == "Failed")


def is_placed(pod: Mapping[str, Object]) -> bool:
    """Its annotations say which GPUs it has."""
    return names.ALLOCATION in pod["metadata"].get("annotations", {})


def is_ending(pod: Mapping[str, Object]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def statuses(pod: Mapping[str, Object]) -> list[Object]:
    return list(pod["status"].get("containerStatuses", ()))


def asks(container: Object) -> bool:
    return not kinds.BY_RESOURCE.keys().isdisjoint(container.get("resources", {}).get("limits", {}))


def slots_of(uuid: str) -> str:
    return f"slots of {uuid}"
