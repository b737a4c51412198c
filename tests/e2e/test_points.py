"""Policies `keti` and `metric` with a real API server and kube-scheduler: GPUNodes decide which GPU a pod gets.

The nodes are objects, and the test writes their GPUNodes as node parts do.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from gpushare.core.facts import names
from tests.e2e.harness import gpunodes
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.gpunodes import PATH
from tests.e2e.harness.installation import held
from tests.e2e.harness.world import World, gpus_of
from tests.support import wait
from tests.support.objects import Object

GIB = 1024
IDLE = {"usedMiB": 0, "utilization": 0, "temperature": 35, "temperatureLimit": 90, "powerWatts": 30,
        "powerLimitWatts": 300}  # fmt: skip
BUSY = {**IDLE, "usedMiB": 12000, "utilization": 97, "temperature": 84, "powerWatts": 290}
NBODY = {"cpu": "250m", "memory": "6400Mi"}  # what KETI's example asks


pytestmark = pytest.mark.usefixtures("kind")


@pytest.fixture(scope="module")
def kind(cluster: Cluster) -> Iterator[None]:
    yield from held(gpunodes.installed(cluster))


async def show(world: World, node: str, *gpus: Object) -> None:
    """Writes the GPUNode of a node, as of now, and waits until the extender has it."""
    listed = [{"index": i, "uuid": f"GPU-{node}-{i}", **gpu} for i, gpu in enumerate(gpus)]
    sampled = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    there = await world.api.get(f"{PATH}/{node}")
    made = there.body if there.code == 200 else None
    if made is None:
        kind = {"apiVersion": "gpushare.io/v1alpha1", "kind": "GPUNode", "metadata": {"name": node}}
        made = await world.api.create(PATH, kind)
    body = {**made, "status": {"sampledAt": sampled, "sampleSeconds": 5, "gpus": listed}}
    answer = await world.api.call("PUT", f"{PATH}/{node}/status", body)
    assert answer.code == 200, answer.body

    async def known() -> bool:
        devices = (await world.ask(f"inspect/{node}"))["nodes"][0]["devs"]
        return [one.get("usedMiB") for one in devices] == [gpu["usedMiB"] for gpu in gpus]

    await wait.eventually_asked(known, f"the figures of {node} in the extender", 10)


def mps(name: str, gpus: int = 1, **more: Any) -> Object:
    return {"name": name, "direct": True, "containers": {"main": {"mps": gpus}}, **more}


async def place(world: World, pod: Object) -> tuple[str, list[int]]:
    await world.make_pods(pod)
    await world.watch.until_bound(pod["name"])
    shown = world.watch.pods[pod["name"]]
    return shown["spec"]["nodeName"], sorted(gpus_of(shown))


async def explained(world: World, pod: Object) -> Object:
    """What the extender says of a pod that does not exist."""
    made = world.pod_of(pod)
    made["metadata"]["namespace"] = world.api.namespace
    made["spec"]["containers"][0]["resources"]["requests"] = NBODY
    answer: Object = await world.ask("explain", made)
    return answer


async def test_the_scores_of_keti_are_those_of_its_formulas_to_the_digit(world: World, figures: Figures) -> None:
    (node,) = await world.make_nodes(1, gpus=[40 * GIB, 40 * GIB], pin="direct", slots=10)
    allocatable = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "500Gi"}
    await world.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": allocatable, "capacity": allocatable}})
    async with world.cluster.extender("--policy=keti"):
        await show(world, node, {"usedMiB": 0}, {"usedMiB": 20 * GIB})
        for gpus, total, points in ((1, 92, 99), (2, 80, 83)):
            (score,) = (await explained(world, mps("nbody", gpus)))["scores"]
            assert sum(score["node"].values()) == 74
            assert (score["points"], score["score"]) == (points, total)
            figures.say(f"KETI's points, {gpus} GPU(s)", f"{score['points']} and 74 for the node: {score['score']}")


async def test_load_raised_on_one_gpu_moves_the_next_pod(world: World) -> None:
    (node,) = await world.make_nodes(1, gpus=[16000, 16000], pin="direct", slots=10)
    async with world.cluster.extender("--policy=metric"), world.cluster.scheduler():
        await show(world, node, IDLE, BUSY)
        assert await place(world, mps("first")) == (node, [0])
        await show(world, node, BUSY, IDLE)
        assert await place(world, mps("second")) == (node, [1])
        why = (await explained(world, mps("third")))["scores"][0]["gpus"]
        assert [gpu["gpu"] for gpu in why if gpu.get("chosen")] == [1]
        assert all(sum(gpu["terms"].values()) == gpu["points"] for gpu in why)


async def test_twenty_pods_within_one_interval_spread_as_if_each_had_been_measured(
    world: World, figures: Figures
) -> None:
    nodes = await world.make_nodes(2, gpus=[16000] * 5, pin="direct", slots=10)
    async with world.cluster.extender("--policy=metric"), world.cluster.scheduler():
        for node in nodes:
            await show(world, node, *[IDLE] * 5)
        made = await world.make_pods(*(mps(f"p{i:02}") for i in range(20)))
        await world.watch.until_bound(*made)
    places = [(world.watch.pods[name]["spec"]["nodeName"], *gpus_of(world.watch.pods[name])) for name in made]
    counts = sorted(places.count(place) for place in set(places))
    figures.say("20 pods on 10 equal idle GPUs, one sample", f"pods on each: {counts}")
    assert counts == [2] * 10


async def test_without_figures_pods_are_placed_and_what_is_unknown_is_not_idle(world: World) -> None:
    known, unknown = await world.make_nodes(2, gpus=[16000], pin="direct", slots=10)
    async with world.cluster.extender("--policy=metric"), world.cluster.scheduler():
        assert (await place(world, mps("blind")))[0] in (known, unknown)
        await show(world, known, IDLE)
        assert (await place(world, mps("idle")))[0] == known
        await show(world, known, BUSY)
        assert (await place(world, mps("not-busy")))[0] == unknown


async def test_a_pod_may_name_the_policy(world: World) -> None:
    (node,) = await world.make_nodes(1, gpus=[16000, 16000], pin="direct", slots=10)
    async with world.cluster.extender(), world.cluster.scheduler():
        await show(world, node, BUSY, IDLE)
        assert await place(world, mps("packed")) == (node, [0])
        assert await place(world, mps("measured", annotations={names.POLICY: "metric"})) == (node, [1])
