"""All kinds of requests on one node, on a real kubelet: memory, whole GPUs by either name, and MPS shares.

The node is started with --mps-slots=10 --nvidia-gpu=whole. Every container sees exactly the GPUs of its binding, a
whole GPU is never beside a share, and neither units nor slots are given out twice.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from gpushare.core.facts import names
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.installation import GUARD, OWN_NODE, PIN, Installation, for_module
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.node_churn import Churn, of_all_kinds
from tests.e2e.harness.node_world import NodeWorld, open_world
from tests.e2e.harness.world import gpus_of
from tests.support import pod_watch
from tests.support.api_client import Api
from tests.support.objects import Object

GPUS = [16276, 16276, 40536, 40536]
SLOTS = 10
WHOLE: Object = {"nvidia": 1, "env": f"{names.VISIBLE_PREFIX}0"}


@pytest.fixture(scope="module")
def installation(node: Node) -> Iterator[Installation]:
    flags = (f"--mps-slots={SLOTS}", "--nvidia-gpu=whole")
    yield from for_module(node, GPUS, ("node-ds.yaml",), policies=(PIN, GUARD, OWN_NODE), flags=flags)


@pytest.fixture
async def world(installation: Installation, api: Api) -> AsyncIterator[NodeWorld]:
    await installation.have(GPUS, "MiB")
    async with open_world(installation, api) as world:
        yield world


async def test_the_node_sells_slots_and_whole_gpus_by_nvidias_name(world: NodeWorld) -> None:
    allocatable = (await world.node.object())["status"]["allocatable"]
    assert (allocatable[names.MPS_GPU], allocatable[names.NVIDIA_GPU]) == (str(SLOTS * len(GPUS)), str(len(GPUS)))


async def test_each_kind_sees_its_gpus_and_holds_its_part(world: NodeWorld) -> None:
    await world.run(
        {"name": "nvidia", "containers": {"main": WHOLE}},
        {"name": "part", "containers": {"main": {"mps": 1}}},
        {"name": "named", "containers": {"main": {"mps": 2}}, "annotations": {names.SLOT_MEMORY[0]: "2000Mi"}},
        {"name": "memory", "containers": {"main": 3000}},
    )
    (whole,) = await world.sees("nvidia")
    for name in ("part", "named", "memory"):
        assert whole not in await world.sees(name)
    assert len(await world.sees("named")) == 2
    assert set(gpus_of(world.watch.pods["named"]).values()) == {2000}
    (gpu,) = gpus_of(world.watch.pods["part"]).items()
    assert gpu[1] == GPUS[gpu[0]] // SLOTS


async def test_a_pod_for_nvidias_plugin_does_not_come_to_this_node(world: NodeWorld) -> None:
    """It has not our env, so it would see no GPU here."""
    await world.make_pods({"name": "foreign", "containers": {"main": {"nvidia": 1}}})
    await world.watch.until_refused("foreign")
    assert "node(s) that need gpushare's admission policy" in pod_watch.refusal(world.watch.pods["foreign"])


async def test_slots_run_out_although_memory_is_free_and_the_next_comes_when_one_ends(world: NodeWorld) -> None:
    small: Object = {"containers": {"main": {"mps": len(GPUS)}}, "annotations": {names.SLOT_MEMORY[0]: "100Mi"}}
    await world.run(*({"name": f"slot-{i}", **small} for i in range(SLOTS)))
    await world.make_pods({"name": "one-more", **small})
    await world.watch.until_refused("one-more")
    await world.delete("slot-3")
    await world.until_running("one-more")


async def test_pods_of_all_kinds_come_and_go(world: NodeWorld, figures: Figures) -> None:
    churn = Churn(world, seconds=120, at_once=25, pods=of_all_kinds(6000), steady=20000)
    await churn.run(figures)
    assert len(churn.starts) >= 100
