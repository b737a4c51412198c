"""Units of init containers: kubelet hands them on to later containers of the pod, in random order."""

import pytest

from gpushare.core.facts import names
from gpushare.devcluster.kubelet.device_manager import PluginError
from tests.node.deviceplugin import promises
from tests.node.deviceplugin.made import Object, facts, pod
from tests.node.deviceplugin.world import world_with

POOLS: dict[str, tuple[Object, int]] = {
    "the app container is larger": (pod(6, inits=[2]), 6),
    "the init container is larger": (pod(2, inits=[6]), 6),
    "two init containers, one after the other": (pod(3, inits=[2, 5]), 5),
    "a sidecar keeps its part of it": (pod(4, inits=[3], sidecars=[2]), 6),
    "two app containers draw from it": (pod(2, 3, inits=[4]), 5),
}


@pytest.mark.parametrize(("shape", "held"), POOLS.values(), ids=list(POOLS))
@pytest.mark.parametrize("seed", range(4))
async def test_all_that_is_handed_on_stays_on_one_gpu(shape: Object, held: int, seed: int) -> None:
    world = await world_with(8, 8, seed=seed)
    uid = await world.run(shape, on=[[1]] * len(world.asked(shape)))
    assert world.used() == world.plugin.held() == {"GPU-1": held}
    await world.settled()
    promises.annotations_are_true(world, ())
    assert world.plugin.held() == {"GPU-1": held}
    world.end(uid)
    await world.settled()
    assert world.plugin.held() == {}


@pytest.mark.parametrize(("shape", "held"), POOLS.values(), ids=list(POOLS))
async def test_a_restarted_plugin_still_counts_what_init_containers_left(shape: Object, held: int) -> None:
    """kubelet keeps it for the pod's whole life, and does not list it."""
    world = await world_with(8, 8)
    await world.run(shape, on=[[1]] * len(world.asked(shape)))
    await world.settled()
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == {"GPU-1": held}


async def test_whole_gpus_are_handed_on_as_well() -> None:
    world = await world_with(8, 8, 8)
    uid = await world.run(pod(whole=1, whole_inits=[2]), on=[[0, 2], [2]])
    (kept,) = world.whole(uid)
    assert kept in ("GPU-0", "GPU-2")
    assert world.plugin.held() == {"GPU-0": 8, "GPU-2": 8}
    await world.settled()
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == {"GPU-0": 8, "GPU-2": 8}


async def test_an_init_container_taken_for_an_equal_pod_is_known_by_what_it_hands_on() -> None:
    """Both ask 2 first, and kubelet does not take the older one first."""
    world = await world_with(8, 8)
    plain, pooled = world.bound(pod(2), on=[[0]]), world.bound(pod(5, inits=[2]), on=[[1], [1]])
    world.deliver()
    assert await world.admit(pooled)
    assert await world.admit(plain)
    await world.settled()
    promises.annotations_are_true(world, ())
    assert sum(world.plugin.held().values()) == 7
    assert len(world.units(pooled, "main-0")) == 1


async def test_what_is_handed_on_is_refused_if_kubelet_filled_it_up_from_another_gpu() -> None:
    world = await world_with(8, 8)
    world.bound(pod(3, inits=[2]), on=[[1], [1]])
    world.deliver()
    memory, ids = world.direct[names.GPU_MEM], world.plugin.state.catalog.names
    handed = await memory.prefer(ids({"GPU-0": 0xFF, "GPU-1": 0xFF}), [], 2)
    await memory.allocate(handed)
    with pytest.raises(PluginError, match=r"units of several GPUs of gpu-a \(1 of GPU 0, 2 of GPU 1\)"):
        await memory.allocate([*handed, *ids({"GPU-0": 1})])


async def test_units_handed_on_that_nobody_was_given_are_refused() -> None:
    world = await world_with(8)
    world.bound(pod(3, inits=[2]), on=[[0], [0]])
    world.deliver()
    ids = world.plugin.state.catalog.names
    with pytest.raises(PluginError, match="reuses units of GPU 0 of gpu-a that no init container was given"):
        await world.direct[names.GPU_MEM].prefer(ids({"GPU-0": 0xFF}), ids({"GPU-0": 3}), 3)


async def test_without_room_for_the_rest_where_the_init_container_is_the_sentence_says_so() -> None:
    world = await world_with(8, 8)
    world.bound(pod(6, inits=[2]), on=[[1], [1]])
    world.deliver()
    memory, ids = world.direct[names.GPU_MEM], world.plugin.state.catalog.names
    handed = await memory.prefer(ids({"GPU-0": 0xFF, "GPU-1": 0xFF}), [], 2)
    await memory.allocate(handed)
    world.set_gpus(facts(8, 8, unhealthy={1: "XID 79"}))
    with pytest.raises(PluginError, match="GPU 1 of gpu-a, where the pod's init containers are, has no room for 6 MiB"):
        await memory.prefer(ids({"GPU-0": 0xFF, "GPU-1": 0xFF}), handed, 6)


async def test_a_plugin_restarted_after_equal_pods_changed_places_finds_both_pools() -> None:
    world = await world_with(8, 8)
    one, two = world.bound(pod(3, inits=[5]), on=[[0], [0]]), world.bound(pod(3, inits=[5]), on=[[1], [1]])
    world.deliver()
    assert await world.admit(two)
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == {"GPU-0": 5}, "and not what its annotation says"
    assert await world.admit(one)
    assert world.plugin.held() == world.used() == {"GPU-0": 5, "GPU-1": 5}


async def test_an_init_container_that_got_units_of_several_gpus_cannot_hand_them_on() -> None:
    """Bound by hand, it asks for as much as a pod that was planned over two GPUs."""
    world = await world_with(8, 8)
    world.bound(pod(4, split=2), on=[[0, 1]])
    world.deliver()
    by_hand = world.bound(pod(1, inits=[4]), planned=False)
    assert not await world.admit(by_hand)
    assert "units of several GPUs of gpu-a (2 of GPU 0, 2 of GPU 1)" in world.refusals[by_hand]
