"""A pod that was taken for another: what cannot be told apart stays held, and annotations that cannot be true go."""

import pytest

from gpushare.core.facts import names
from gpushare.node.deviceplugin import reconcile
from gpushare.node.deviceplugin.allocation import correct
from gpushare.obs.errors import UserError
from tests.node.deviceplugin.made import NODE, pod
from tests.node.deviceplugin.world import world_with
from tests.support.builders import node_state


async def test_beside_a_silent_kubelet_nothing_is_freed_that_an_equal_pod_may_have() -> None:
    world = await world_with(10, 10)
    one, two = world.bound(pod(4), on=[[0]]), world.bound(pod(4), on=[[1]])
    world.deliver()
    world.kubelet_answers = False
    assert await world.admit(two)  # it gets what was planned for the other
    assert await world.admit(one)
    assert world.units(two, "main-0") == {"GPU-0": 4}
    world.end(one)
    world.deliver()
    for _ in range(reconcile.PATIENCE + 2):
        await world.plugin.reconciler.once()
    whole = world.bound(pod(whole=1), on=[[0]])
    world.deliver()
    assert not await world.admit(whole)
    assert "GPU 0" in world.refusals[whole]
    world.end(two)
    world.deliver()
    correct.give_up(world.plugin.state)
    assert world.plugin.held() == {}, "nobody is left who could have it"


async def test_after_a_restart_init_containers_hold_all_gpus_that_any_of_them_had() -> None:
    world = await world_with(10, 10, 10)
    await world.run(pod(4, whole_inits=[1, 2]), on=[[0], [0, 1], [2]])
    before = world.plugin.held()
    world.start_plugin()
    await world.begin()
    assert world.plugin.held() == before == {"GPU-0": 10, "GPU-1": 10, "GPU-2": 4}


async def test_a_pod_that_has_more_gpus_than_it_asks_says_nothing_false() -> None:
    """It got the plan of one that is gone, which the watch has not said yet. Nobody can say in annotations what it has,
    so it says nothing, and counts on every GPU."""
    world = await world_with(8, 8, 8)
    gone = world.bound(pod(6, split=3), on=[[0, 1, 2]])
    world.deliver()
    world.delete(gone)
    uid = world.bound(pod(6, split=2), on=[[0, 1]])
    assert await world.admit(uid)
    assert world.units(uid, "main-0") == {"GPU-0": 2, "GPU-1": 2, "GPU-2": 2}
    await world.settled()
    assert not {names.ALIYUN_IDX, names.ALLOCATION} & world.notes(uid).keys()
    assert node_state(world.ledger, NODE).effective().units == [6, 6, 6]
    await world.settled()
    assert world.plugin.held() == {"GPU-0": 2, "GPU-1": 2, "GPU-2": 2}


async def test_without_kubelets_list_the_plugin_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await world_with(8)
    monkeypatch.setattr("gpushare.node.deviceplugin.plugin.START_SECONDS", 0)
    with pytest.raises(UserError, match="pod-resources socket is not there") as caught:
        await world.plugin._find_pod_resources()
    assert caught.value.way == "mount kubelet's pod-resources folder, as deploy/device-plugin-ds.yaml does"
