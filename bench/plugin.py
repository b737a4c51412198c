"""The device plugin on a node of eight GPUs, one unit for each MiB: what kubelet waits for, and what it costs the node.

Everything is as on a node but kubelet and the driver: the component is a process of its own (`bench.running_node`),
kubelet's side is the embedded cluster's, over the same sockets, and the API server is in this process. CPU time is that
of the component's process, from the question to the answer, and the best of some rounds: on a busy machine others'
work makes each of them dearer.
"""

import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from bench.process import cpu_seconds_now, resident_mb_now, resident_mb_peak
from bench.result import Result
from bench.started import started
from bench.yardstick import HERE
from gpushare.core.annotations import node_gpus, pod_gpus
from gpushare.core.facts import names, objects, request
from gpushare.core.facts.model import Request
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.kubelet.device_manager import DeviceManager
from gpushare.devcluster.kubelet.sockets import KubeletSockets, Remote
from gpushare.kubelet import paths

NODE = "gpu-a"
GPUS, TOTAL, ASKED = 8, 24_576, 20_000
ROUNDS = 5
PATIENCE = 60.0  # seconds
LOOK = 0.01
PODS = next(kind for kind in table.KINDS if kind.resource == "pods")
NODES = next(kind for kind in table.KINDS if kind.resource == "nodes")


def run() -> Iterator[Result]:
    yield from asyncio.run(_measure())


async def _measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        async with HERE.looking(), _node(Path(folder)) as (server, manager, pid, registered):
            spent: dict[str, list[float]] = {"prefer": [], "allocate": []}
            with _measuring(pid, spent):
                for number in range(ROUNDS):
                    await manager.admit(_bind(server, f"alone-{number}", number % GPUS))
                    await _settled(server)
                    server.registry.delete(PODS, "default", f"alone-{number}", {"gracePeriodSeconds": 0})
            for gpu in range(GPUS):
                await manager.admit(_bind(server, f"together-{gpu}", gpu))
            await _settled(server)
            steady, peak = resident_mb_now(pid), resident_mb_peak(pid)
    units = f"{ASKED:,} of {GPUS * TOTAL:,} units"
    return [
        Result(f"device plugin, start to registered, {GPUS} GPUs", registered, "CPU s", 1.0, of=fmean),
        Result(f"GetPreferredAllocation, {units}", min(spent["prefer"]) * 1000, "CPU ms", 60.0),
        Result(f"GetPreferredAllocation, {units}, worst of {ROUNDS}", max(spent["prefer"]) * 1000, "CPU ms"),
        Result(f"Allocate, {units}", min(spent["allocate"]) * 1000, "CPU ms", 5.0),
        Result(f"Allocate, {units}, worst of {ROUNDS}", max(spent["allocate"]) * 1000, "CPU ms"),
        Result(f"device plugin, {GPUS * TOTAL:,} units: resident, steady", steady, "MB", 110.0),
        Result(f"device plugin, {GPUS * TOTAL:,} units: resident, peak", peak, "MB", 160.0),
    ]


@contextlib.asynccontextmanager
async def _node(folder: Path) -> AsyncIterator[tuple[ApiServer, DeviceManager, int, float]]:
    """A node whose device plugin has registered, and how many CPU seconds that took."""
    (folder / paths.DEVICE_PLUGINS).mkdir()
    (folder / paths.POD_RESOURCES).parent.mkdir()
    async with ApiServer(audit=False) as server:
        server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}])
        manager = DeviceManager(lambda: [pod["metadata"]["uid"] for pod in _pods(server)], random.Random(1))
        resources = folder / paths.POD_RESOURCES
        sockets = KubeletSockets(manager, folder / paths.DEVICE_PLUGINS, resources, lambda: _pods(server))
        config = server.write_kubeconfig(folder / "kubeconfig")
        uuids = [f"GPU-{i:08x}" for i in range(GPUS)]
        async with sockets, started(config, NODE, "plugin", str(folder), str(TOTAL), *uuids) as child:
            everything = {names.GPU_MEM: GPUS * TOTAL, names.GPU_COUNT: GPUS}
            await _until(lambda: manager.allocatable() == everything)
            yield server, manager, child.pid, cpu_seconds_now(child.pid)


def _bind(server: ApiServer, name: str, gpu: int) -> dict[str, Any]:
    """A pod that the extender has bound, planned on that GPU."""
    asks = {"limits": {names.GPU_MEM: str(ASKED)}}
    meta: dict[str, Any] = {"name": name, "namespace": "default"}
    made = {
        "metadata": meta,
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "app", "resources": asks}]},
    }
    entry = server.store.get(NODES.resource, NODE)
    assert entry is not None
    facts = node_gpus.read(msgspec.convert(entry.obj(), objects.Node), frozenset())
    asked = request.facts(msgspec.convert(made, objects.Pod), "MiB").request
    assert facts is not None
    assert isinstance(asked, Request)
    meta["annotations"] = pod_gpus.write(asked, facts, ((gpu,),), extender="0a1b2c3d", nanoseconds=1)
    created: dict[str, Any] = msgspec.json.decode(server.registry.create(PODS, "default", made))
    return created


async def _settled(server: ApiServer) -> None:
    """It has asked kubelet who has what, and written that the pods have got what they asked for."""
    await _until(lambda: all(pod["metadata"]["annotations"][names.ALIYUN_ASSIGNED] == "true" for pod in _pods(server)))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(LOOK)


def _pods(server: ApiServer) -> list[dict[str, Any]]:
    return [entry.obj() for entry in server.store.shelf(PODS.resource).entries.values()]


@contextlib.contextmanager
def _measuring(pid: int, spent: dict[str, list[float]]) -> Iterator[None]:
    """Notes the CPU seconds of the process during each question."""
    asked: dict[str, Callable[..., Awaitable[Any]]] = {name: getattr(Remote, name) for name in spent}

    def measured(name: str) -> Callable[..., Awaitable[Any]]:
        async def ask(*given: Any) -> Any:
            before = cpu_seconds_now(pid)
            answer = await asked[name](*given)
            spent[name].append(cpu_seconds_now(pid) - before)
            return answer

        return ask

    try:
        for name in spent:
            setattr(Remote, name, measured(name))
        yield
    finally:
        for name, original in asked.items():
            setattr(Remote, name, original)
