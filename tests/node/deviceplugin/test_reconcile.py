"""Who really has what: kubelet is asked when all is quiet, and table and annotations are corrected."""

import pytest

from gpushare.core.facts import names
from gpushare.devcluster.kubelet.device_manager import PluginError
from gpushare.kube.errors import ApiError
from gpushare.node.deviceplugin import reconcile
from gpushare.node.deviceplugin.allocation.table import Owner
from gpushare.node.deviceplugin.reconcile import QUIET_SECONDS, Calls
from tests.node.deviceplugin import promises
from tests.node.deviceplugin.made import Object, facts, pod
from tests.node.deviceplugin.world import World, swapped, world_with


async def test_equal_pods_that_came_in_the_other_order_get_each_others_annotations() -> None:
    world = await world_with(8, 8)
    one, two = await swapped(world)
    assert (world.units(one, "main-0"), world.units(two, "main-0")) == ({"GPU-1": 6}, {"GPU-0": 6})
    await world.settled()
    assert [world.notes(uid)[names.ALLOCATION] for uid in (one, two)] == ['{"0":{"1":6}}', '{"0":{"0":6}}']
    assert [world.notes(uid)[names.ALIYUN_IDX] for uid in (one, two)] == ["1", "0"]
    assert [world.notes(uid)[names.ALIYUN_ASSIGNED] for uid in (one, two)] == ["true", "true"]


async def test_the_patch_carries_the_uid_so_a_pod_of_the_same_name_is_never_meant() -> None:
    world = await world_with(8, 8)
    one, _ = await swapped(world)
    name = world.server.pods[one]["metadata"]["name"]
    world.delete(one)
    anew = world.bound(pod(2, name=name), on=[[0]])
    await world.plugin.reconciler.once()
    assert world.notes(anew)[names.ALLOCATION] == '{"0":{"0":2}}'
    assert world.notes(anew)[names.ALIYUN_ASSIGNED] == "false"


@pytest.mark.parametrize("status", [404, 409, 422])
async def test_a_pod_that_is_gone_needs_no_annotation(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await world_with(8)
    await world.run(pod(6))

    async def gone(*_: object) -> None:
        raise ApiError(status, "Gone", "no such pod")

    monkeypatch.setattr(world.server, "patch_pod_annotations", gone)
    assert await world.plugin.reconciler.once(), "nothing is left to do"


async def test_annotations_are_written_when_the_api_server_is_back() -> None:
    world = await world_with(8, 8)
    await swapped(world)
    world.server.away = True
    assert not await world.plugin.reconciler.once()
    world.server.away = False
    assert await world.plugin.reconciler.once()
    promises.annotations_are_true(world, ())


def test_kubelet_is_not_asked_while_it_asks_us_nor_within_a_second_after() -> None:
    now = [100.0]
    calls = Calls(lambda: now[0])
    now[0] += 5
    assert calls.quiet_in() == 0
    with calls:
        now[0] += 5
        assert calls.quiet_in() > 0
    assert calls.quiet_in() == QUIET_SECONDS
    now[0] += 0.75
    assert calls.quiet_in() == 0.25
    now[0] += 0.25
    assert calls.quiet_in() == 0


async def test_a_call_that_is_refused_counts_as_well() -> None:
    world = await world_with(8)
    with pytest.raises(PluginError):
        await world.direct[names.GPU_MEM].allocate(["zzzzzzz"])
    assert world.plugin.calls.quiet_in() > 0


async def test_a_restarted_plugin_knows_what_pods_hold_from_kubelet() -> None:
    world = await world_with(8, 8, 8)
    one, two = await swapped(world)
    whole = await world.run(pod(whole=1), on=[[2]])
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == {"GPU-0": 6, "GPU-1": 6, "GPU-2": 8}
    world.end(one)
    world.delete(two)
    world.end(whole)
    world.deliver()
    assert world.plugin.held() == {}


@pytest.mark.parametrize("shape", [pod(3, inits=[2]), pod(1, inits=[2], sidecars=[2]), pod(1, 2)])
async def test_a_plugin_restarted_beside_a_silent_kubelet_counts_what_was_planned_until_it_speaks(
    shape: Object,
) -> None:
    world = await world_with(8, 8)
    await world.run(shape, on=[[1]] * len(world.asked(shape)))
    world.kubelet_answers = False
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == {"GPU-1": 3}
    world.kubelet_answers = True
    await world.settled()
    assert world.plugin.held() == {"GPU-1": 3}
    assert world.used() == {"GPU-1": 3}


async def test_what_is_nobodys_is_given_up_when_kubelet_is_silent_for_long() -> None:
    world = await world_with(8)
    first = await world.run(pod(6))
    world.bound(pod(6), on=[[0]])
    world.kubelet_answers = False
    world.delete(first)
    world.deliver()
    assert world.plugin.held() == {"GPU-0": 6}, "it may be the other pod's, which asks for as much"
    for _ in range(reconcile.PATIENCE + 1):
        assert not await world.plugin.reconciler.correct()
    assert world.plugin.held() == {}


async def test_units_of_a_pod_that_has_ended_are_given_to_the_next_at_once() -> None:
    """Also before anybody could ask kubelet whose they were."""
    world = await world_with(8)
    for _ in range(5):
        uid = await world.run(pod(6), on=[[0]])
        world.end(uid)
    assert world.server.lists <= 5


async def test_a_pod_whose_plan_went_to_an_equal_one_that_has_ended_since_gets_it_after_all() -> None:
    world = await world_with(8)
    one, two = world.bound(pod(6), on=[[0]]), world.bound(pod(6), on=[[0]])
    world.deliver()
    assert await world.admit(two)
    world.delete(two)
    world.deliver()
    assert world.plugin.held() == {"GPU-0": 6}, "it was taken for the older one's"
    assert await world.admit(one), world.refusals
    assert world.plugin.held() == {"GPU-0": 6}


async def test_a_plan_that_was_used_by_another_is_not_free_when_its_pod_is_deleted() -> None:
    """The one that used it is not known yet: the watch brings the end of the first one before."""
    world = await world_with(8)
    gone = world.bound(pod(whole=1), on=[[0]])
    world.deliver()
    world.delete(gone)
    by_hand = world.bound(pod(whole=1), planned=False)
    assert await world.admit(by_hand)
    world.deliver(1)
    assert world.plugin.held() == {"GPU-0": 8}
    shared = world.bound(pod(2), on=[[0]])
    assert not await world.admit(shared)
    promises.a_whole_gpu_is_nobody_elses(world)


async def test_a_pod_that_another_was_taken_for_is_not_believed_to_be_half_started() -> None:
    """Else its plan would come before those of older pods, although kubelet has not begun with it."""
    world = await world_with(8, 8)
    older = world.bound(pod(2, 5), on=[[0], [0]])
    one, two = (world.bound(pod(2, inits=[3]), on=[[1], [1]]) for _ in range(2))
    world.deliver()
    assert await world.admit(two)
    await world.settled()
    assert world.plugin.state.admitting() == ""
    assert await world.admit(older)
    assert world.units(older, "main-0") == {"GPU-0": 2}
    assert await world.admit(one)


async def test_a_pod_over_two_gpus_whose_units_another_got_keeps_its_plan() -> None:
    """The other was bound by hand, for as much on one GPU."""
    world = await world_with(8, 8)
    split = world.bound(pod(6, split=2), on=[[0, 1]])
    world.deliver()
    await world.run(pod(6), planned=False)
    await world.settled()
    assert world.plugin.state.plans.planned(Owner(split, 0)) == ("GPU-0", "GPU-1")
    assert await world.admit(split)
    assert world.units(split, "main-0") == {"GPU-0": 3, "GPU-1": 3}


async def test_beside_a_silent_kubelet_those_that_run_have_got_what_was_given() -> None:
    world = await world_with(8, 8)
    one, two = world.bound(pod(6), on=[[0]]), world.bound(pod(6), on=[[1]])
    world.deliver()
    assert await world.admit(two)
    world.kubelet_answers = False
    await world.settled()
    table, plans = world.plugin.state.table, world.plugin.state.plans
    grant = table.of(Owner(two, 0))
    assert grant is not None
    assert set(grant.gpus) == {"GPU-0"}
    assert plans.planned(Owner(one, 0)) == ("GPU-1",), "they have changed places"


async def test_what_only_init_containers_hold_stays_counted_although_kubelet_never_lists_it() -> None:
    world = await world_with(8)
    uid = world.bound(pod(inits=[3]), on=[[0]])
    world.deliver()
    await world.manager.admit(world.server.pods[uid])
    await world.plugin.reconciler.correct()
    assert world.plugin.held() == {"GPU-0": 3}, "and nobody says yet that the pod has started"
    world.end(uid)
    await world.settled()
    assert world.plugin.held() == {}


async def test_a_whole_gpu_is_given_at_once_after_a_pod_that_had_memory_of_it_was_refused() -> None:
    """kubelet is asked before anybody is refused: to it the two resources have nothing to do with each other."""
    world = await world_with(8)
    assert not await world.admit(world.bound(pod(1, whole=1), planned=False))
    assert world.plugin.held() == {"GPU-0": 1}, "of the refused pod, which nobody has cleared away yet"
    uid = await world.run(pod(whole=1), on=[[0]])
    assert world.whole(uid) == ["GPU-0"]
    assert world.plugin.held() == {"GPU-0": 8}


async def test_a_kubelet_that_forgot_what_it_got_last_is_given_it_again() -> None:
    """It died before it wrote its checkpoint, and asks anew after its start."""
    world = await world_with(8)
    uid = world.bound(pod(6), on=[[0]])
    world.deliver()
    saved = world.manager.checkpoint()
    await world.manager.admit(world.server.pods[uid])
    world.start_kubelet(saved)
    await world.relist()
    assert await world.admit(uid)
    assert world.plugin.held() == {"GPU-0": 6}


async def test_pods_from_before_the_move_keep_their_gpu_and_their_amount_is_withheld() -> None:
    """Aliyun's plugin lets kubelet choose any ids and gives the annotated GPU: the annotation counts, not the id."""
    world = World(8, 8)
    old = world.bound(pod(5), on=[[1]])
    world.given_before(old, "main-0", [f"GPU-0-_-{j}" for j in range(5)])
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == {"GPU-1": 5}
    listed = await world.devices(names.GPU_MEM)
    assert len(listed) == 16
    assert all(listed.values()), "listed unhealthy they would be subtracted twice"
    new = world.bound(pod(3), on=[[1]])
    world.deliver()
    assert await world.admit(new)
    assert world.units(new, "main-0") == {"GPU-1": 3}
    world.bound(pod(2), on=[[1]])
    free = world.plugin.state.catalog.names({"GPU-1": 0b11 << 6})
    with pytest.raises(
        PluginError, match="GPU 1 of gpu-a has no room for 2 MiB: pods that started before this plugin hold"
    ):
        await world.direct[names.GPU_MEM].allocate(free)
    world.end(old)
    world.deliver()
    assert world.plugin.held() == {"GPU-1": 3}


async def test_a_pod_from_before_the_move_without_annotation_counts_where_its_ids_say() -> None:
    world = World(8, 8)
    old = world.bound(pod(5), planned=False)
    world.given_before(old, "main-0", [f"GPU-0-_-{j}" for j in range(5)])
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == {"GPU-0": 5}
    await world.settled()
    assert world.notes(old)[names.ALLOCATION] == '{"0":{"0":5}}'


async def test_ids_that_name_no_gpu_count_on_every_gpu() -> None:
    world = World(8, 8)
    old = world.bound(pod(5), planned=False)
    world.given_before(old, "main-0", [f"of-another-plugin-{j}" for j in range(5)])
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == {"GPU-0": 5, "GPU-1": 5}


async def test_a_gpu_that_is_lost_still_counts_what_pods_hold_there() -> None:
    world = await world_with(8, 8)
    await world.run(pod(5), on=[[1]])
    await world.settled()
    world.set_gpus(facts(8, 8, unhealthy={1: "lost: the driver does not show it any more"}))
    await world.settled()
    assert world.plugin.held() == {"GPU-1": 5}
