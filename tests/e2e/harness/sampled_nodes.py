"""Nodes whose GPUs do something: `gpushare node` as a process, on the stand-in for NVIDIA's library, which is told the
pids of real processes in cgroups named as kubelet names them.

There is no kubelet: pods run because the test says so, and a process is put into the cgroup of its container.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

from tests.e2e.harness import containers, network, objects, shipped
from tests.e2e.harness.cluster import Cluster, until
from tests.e2e.harness.world import World
from tests.support.nvml import build, state
from tests.support.objects import Object

PORT = 9400
SAMPLE_SECONDS = "1"
GROUP = "gpushare-sampled"
FIRST_ALIAS = 20  # of loopback; others have lower ones


class SampledNode:
    """`sizes`: of its GPUs in MiB, by their number in the stand-in. `probes`: the port of loopback that answers without
    asking who you are."""

    def __init__(self, name: str, address: str, probes: int, sizes: Mapping[int, int], folder: Path) -> None:
        self.name, self.address, self.probes, self.sizes = name, address, probes, dict(sizes)
        folder.mkdir()
        self.mock = state.Mock(folder / "gpus")
        self.show({})

    @property
    def target(self) -> str:
        return f"{self.address}:{PORT}"

    def show(self, processes: Mapping[int, list[str]], **figures: int | str | None) -> None:
        """From now on: by GPU the processes on it, each made by `state.process`."""
        cards = (state.using(n, size, *processes.get(n, []), **figures) for n, size in self.sizes.items())
        self.mock.show(*cards)


@contextlib.asynccontextmanager
async def started(
    world: World, folder: Path, sizes: Mapping[str, Mapping[int, int]], *words: str, **environment: str
) -> AsyncIterator[dict[str, SampledNode]]:
    """By name, each with its own address and the GPUs of these numbers and sizes. `words`: more for `gpushare node`."""
    cluster, library = world.cluster, build.build(folder / "nvml").parent
    nodes = {}
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(applied(cluster, *shipped.rights("node-ds.yaml")))
        for i, (name, gpus) in enumerate(sizes.items()):
            address = f"10.99.1.{i + 1}"
            network.add(address, f"lo:{FIRST_ALIAS + i}".encode())
            node = nodes[name] = SampledNode(name, address, shipped.NODE_PORT + i, gpus, folder / name)
            await world.api.create("/api/v1/nodes", objects.node(name))
            world.nodes[name] = list(gpus.values())
            await stack.enter_async_context(_part(cluster, node, library, words, environment))
            # kubelet would do this
            capacity = (await cluster.get(f"/api/v1/nodes/{name}"))["status"]["capacity"]
            await world.patch(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": capacity}})
        yield nodes


@contextlib.asynccontextmanager
async def applied(cluster: Cluster, *made: Object) -> AsyncIterator[None]:
    """Meanwhile these objects are there."""
    await cluster.apply(*made)
    try:
        yield
    finally:
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
        await cluster.kubectl("delete", "--ignore-not-found", "-f", "-", given=given)


@contextlib.asynccontextmanager
async def _part(
    cluster: Cluster, node: SampledNode, library: Path, words: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[None]:
    config = await cluster.account_kubeconfig(shipped.NAMESPACE, "gpushare-node")
    said = {"NODE_NAME": node.name, "LD_LIBRARY_PATH": str(library), state.VARIABLE: str(node.mock.path)}
    process = cluster.processes.start(
        f"node-{node.name}", Path(sys.executable).parent / "gpushare", "node", "--pin", "direct",
        "--memory-unit", "MiB", "--kubeconfig", config, "--port", str(node.probes),
        "--sample-seconds", SAMPLE_SECONDS, *words,
        environment={**os.environ, **said, "POD_IP": node.address, **environment},
    )  # fmt: skip
    try:
        await until(process.name, lambda: cluster.answers(f"http://127.0.0.1:{node.probes}/readyz"), process)
        yield
    finally:
        await cluster.processes.end(process)


class Cgroups:
    """Real processes that do nothing, each in the cgroup of a container."""

    def __init__(self, top: Path) -> None:
        self._top, self._processes = top, list[subprocess.Popen[bytes]]()

    def process(self, pod_uid: str = "") -> int:
        """Its pid. Without a pod it is outside all cgroups of pods."""
        made = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "sleep", "600"], stdin=subprocess.DEVNULL)
        self._processes.append(made)
        if pod_uid:
            folder = self._top / "kubepods" / f"pod{pod_uid}" / f"{len(self._processes):064x}"
            folder.mkdir(parents=True)
            (folder / "cgroup.procs").write_text(str(made.pid))
        return made.pid

    def end(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        for folder, _, _ in os.walk(self._top, topdown=False):
            Path(folder).rmdir()


@contextlib.contextmanager
def cgroups() -> Iterator[Cgroups]:
    """In one hierarchy: a process has the same place in all, or none in the others."""
    top = containers.hierarchies()[-1] / f"{GROUP}-{os.getpid()}"
    top.mkdir()
    made = Cgroups(top)
    try:
        yield made
    finally:
        made.end()
