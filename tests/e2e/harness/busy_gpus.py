"""A small cluster in which everything that a dashboard shows happens: pods that run, one that uses more than it was
given, one that waits, and what the GPUs do meanwhile.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from tests.e2e.harness import gpunodes
from tests.e2e.harness.world import World, gpus_of
from tests.support.objects import Object

GPUS = (8000, 8000)
GIVEN, ASKED = 4800, 6000  # MiB, of those that run and of the one that waits
WAITS = "waits"
OVER = 700  # MiB that the first one uses too much


@contextlib.asynccontextmanager
async def busy(world: World, nodes: int = 2) -> AsyncIterator[list[str]]:
    """The names of the nodes. On each GPU runs one pod."""
    cluster = world.cluster
    made = await world.make_nodes(nodes, gpus=list(GPUS))
    async with gpunodes.installed(cluster), cluster.extender(), cluster.scheduler(), world.kubelets():
        count = nodes * len(GPUS)
        pods = await world.make_pods(*({"name": f"holds-{i}", "containers": {"main": GIVEN}} for i in range(count)))
        await world.watch.until_bound(*pods, seconds=60)
        await world.make_pods({"name": WAITS, "containers": {"main": ASKED}})
        await world.watch.until_refused(WAITS, seconds=60)
        for node in made:
            await tell(world, node, [world.watch.pods[name] for name in pods], OVER if node == made[0] else 0)
        yield made


async def tell(world: World, node: str, pods: Sequence[Object], over: int = 0) -> None:
    """Writes what the GPUs of this node do, as its node part does. `over`: of its first GPU."""
    here = [pod for pod in pods if pod["spec"].get("nodeName") == node]
    gpus = []
    for index in range(len(GPUS)):
        containers = [
            {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"],
             "uid": pod["metadata"]["uid"], "container": pod["spec"]["containers"][0]["name"],
             "grantedMiB": given[index], "usedMiB": given[index] + over if index == 0 and over else given[index] // 2}
            for pod in here if index in (given := gpus_of(pod))
        ]  # fmt: skip
        used = sum(one["usedMiB"] for one in containers) + 300
        gpus.append({
            "index": index, "uuid": f"GPU-{node}-{index}", "model": "NVIDIA A16", "totalMiB": GPUS[index],
            "usedMiB": used, "utilization": 40 + index, "temperature": 61, "powerWatts": 50, "containers": containers,
        })  # fmt: skip
    kind = {"apiVersion": "gpushare.io/v1alpha1", "kind": "GPUNode", "metadata": {"name": node}}
    if (await world.api.get(f"{gpunodes.PATH}/{node}")).code == 404:
        await world.api.create(gpunodes.PATH, kind)
    sampled = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await world.patch(f"{gpunodes.PATH}/{node}/status", {"status": {"sampledAt": sampled, "gpus": gpus}})
