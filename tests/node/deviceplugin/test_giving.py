"""What containers get: the GPUs that were planned for them, whatever the order in which kubelet asks."""

import itertools

import pytest

from gpushare.core.facts import names
from gpushare.node.deviceplugin import podlist
from tests.node.deviceplugin import promises
from tests.node.deviceplugin.made import facts, pod
from tests.node.deviceplugin.world import World, world_with


async def test_a_container_gets_its_planned_gpu_and_is_told_so() -> None:
    world = await world_with(16, 16)
    uid = await world.run(pod(6), on=[[1]])
    assert world.units(uid, "main-0") == {"GPU-1": 6}
    assert world.told(uid) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-1",
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "6",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "6",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
    }
    await world.settled()
    assert world.notes(uid)[names.ALIYUN_ASSIGNED] == "true"


async def test_two_containers_of_a_pod_get_two_gpus() -> None:
    world = await world_with(16, 16)
    uid = await world.run(pod(6, 6), on=[[1], [0]])
    assert (world.units(uid, "main-0"), world.units(uid, "main-1")) == ({"GPU-1": 6}, {"GPU-0": 6})
    assert [world.told(uid, name)["NVIDIA_VISIBLE_DEVICES"] for name in ("main-0", "main-1")] == ["GPU-1", "GPU-0"]


async def test_a_container_over_several_gpus_gets_as_much_of_each() -> None:
    world = await world_with(16, 16, 16)
    uid = await world.run(pod(12, split=2), on=[[2, 0]])
    assert world.units(uid, "main-0") == {"GPU-0": 6, "GPU-2": 6}
    assert world.told(uid)["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-2"
    assert (world.told(uid)["ALIYUN_COM_GPU_MEM_IDX"], world.told(uid)["ALIYUN_COM_GPU_MEM_POD"]) == ("0", "12")


async def test_whole_gpus_stand_beside_shared_ones_and_count_with_all_their_memory() -> None:
    world = await world_with(16, 12, 8)
    shared = await world.run(pod(6), on=[[0]])
    uid = await world.run(pod(whole=2), on=[[1, 2]])
    assert world.whole(uid) == ["GPU-1", "GPU-2"]
    assert world.told(uid, "whole")["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert world.told(uid, "whole")["ALIYUN_COM_GPU_MEM_POD"] == "20"
    assert world.plugin.held() == {"GPU-0": 6, "GPU-1": 12, "GPU-2": 8}
    assert world.units(shared, "main-0") == {"GPU-0": 6}


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_equal_pods_in_any_order_fill_the_gpus_as_planned(order: tuple[int, ...]) -> None:
    world = await world_with(8, 8)
    uids = [world.bound(pod(3)) for _ in range(4)]
    for i in order:
        assert await world.admit(uids[i]), world.refusals
    assert world.used() == {"GPU-0": 6, "GPU-1": 6}
    await world.settled()
    promises.annotations_are_true(world, ())


async def test_on_gpus_of_different_sizes_each_share_fits_its_own() -> None:
    world = await world_with(4, 24, 8)
    uids = [await world.run(pod(n)) for n in (24, 8, 4)]
    assert [world.units(uid, "main-0") for uid in uids] == [{"GPU-1": 24}, {"GPU-2": 8}, {"GPU-0": 4}]
    assert world.told(uids[0])["ALIYUN_COM_GPU_MEM_DEV"] == "24"


async def test_a_node_may_have_one_gpu_only() -> None:
    world = await world_with(8)
    await world.run(pod(3))
    await world.run(pod(5))
    assert world.used() == {"GPU-0": 8}


async def test_a_pod_that_kubelet_sees_before_the_watch_is_looked_up_once() -> None:
    world = await world_with(16, 16)
    uid = world.bound(pod(6), on=[[1]])
    assert not world.plugin.state.plans.pods
    assert await world.admit(uid)
    assert world.units(uid, "main-0") == {"GPU-1": 6}
    assert world.server.lists == 1


async def test_pods_that_were_looked_up_count_as_old_as_their_bindings() -> None:
    """kubelet gets them in that order, while a list is in no order at all."""
    for seed in range(8):
        world = await world_with(8, 8, seed=seed)
        first, second = world.bound(pod(2, inits=[2]), on=[[0], [0]]), world.bound(pod(2, 5), on=[[1], [1]])
        assert await world.admit(first)
        assert await world.admit(second)
        assert world.units(first, "main-0") == {"GPU-0": 2}
        assert world.units(second, "main-0") == {"GPU-1": 2}


async def test_while_the_api_server_is_away_the_watch_may_still_bring_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await world_with(16, 16)
    uid = world.bound(pod(6), on=[[1]])
    waits = world.plugin._pod_list._wait_for_watch

    async def bring(end: float) -> None:
        world.deliver()
        await waits(end)

    monkeypatch.setattr(world.plugin._pod_list, "_wait_for_watch", bring)
    world.server.away = True
    assert await world.admit(uid)
    assert world.units(uid, "main-0") == {"GPU-1": 6}


async def test_a_pod_nobody_knows_gets_what_is_free_beside_all_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podlist, "WAIT_SECONDS", 0.0)
    world = await world_with(8, 12)
    planned = world.bound(pod(8), on=[[0]])
    world.deliver()
    stranger = world.bound(pod(5), planned=False)
    world.server.away = True
    assert await world.admit(stranger)
    assert world.units(stranger, "main-0") == {"GPU-1": 5}
    assert await world.admit(planned)
    assert world.units(planned, "main-0") == {"GPU-0": 8}


async def test_a_pod_bound_by_hand_gets_an_annotation_that_says_what_it_got() -> None:
    world = await world_with(8, 12)
    uid = await world.run(pod(8), planned=False)
    assert world.units(uid, "main-0") == {"GPU-0": 8}
    await world.settled()
    assert world.notes(uid)[names.ALLOCATION] == '{"0":{"0":8}}'
    assert world.notes(uid)[names.ALIYUN_IDX] == "0"


async def test_a_plan_that_cannot_be_kept_is_made_anew_before_it_is_refused() -> None:
    world = await world_with(16, 16)
    uid = world.bound(pod(6, 4), on=[[1], [1]])
    world.deliver()
    world.set_gpus(facts(16, 16, unhealthy={1: "XID 79"}))
    await world.relist()
    assert await world.admit(uid)
    assert world.used() == {"GPU-0": 10}
    await world.settled()
    assert world.notes(uid)[names.ALLOCATION] == '{"0":{"0":6},"1":{"0":4}}'


async def test_gpus_may_be_named_by_index() -> None:
    world = World(16, 16, visible="index")
    await world.begin()
    uid = await world.run(pod(12, split=2), on=[[0, 1]])
    assert world.told(uid)["NVIDIA_VISIBLE_DEVICES"] == "0,1"


async def test_a_node_without_cgpu_isolation_says_so_to_its_containers() -> None:
    world = World(16)
    world.server.node["metadata"]["labels"] = {"cgpu.disable.isolation": "true"}
    await world.plugin._read_kubelet()
    await world.begin()
    uid = await world.run(pod(6))
    assert world.told(uid)["CGPU_DISABLE"] == "true"
