"""A kubelet that is never quiet: what it alone knows is learnt between two pods, what we know is said at once."""

import asyncio
import contextlib

from gpushare.core.facts import names
from gpushare.kubelet.podresources import Listed
from gpushare.node.deviceplugin.allocation.table import Owner
from gpushare.node.deviceplugin.reconcile import OVERDUE_SECONDS
from tests.node.deviceplugin.made import facts, pod
from tests.node.deviceplugin.world import World, swapped, world_with
from tests.support.wait import PATIENCE


def minutes_pass(world: World) -> None:
    """Without a quiet second."""
    calls = world.plugin.calls
    now = calls.clock()
    calls.clock = lambda: now + 10 * OVERDUE_SECONDS


def known(world: World, uid: str) -> set[str]:
    """The GPUs of a pod, once kubelet has said it."""
    grant = world.plugin.state.table.of(Owner(uid, 0))
    return set(grant.gpus) if grant is not None and grant.confirmed else set()


async def test_who_has_what_is_learnt_between_two_pods() -> None:
    world = await world_with(8, 8)
    one, two = await swapped(world)
    third = world.bound(pod(2), on=[[0]])
    world.deliver()
    minutes_pass(world)
    assert await world.admit(third)
    assert (known(world, one), known(world, two), known(world, third)) == ({"GPU-1"}, {"GPU-0"}, set())


async def test_without_need_kubelet_is_left_alone() -> None:
    world = await world_with(8, 8)
    one, _ = await swapped(world)
    third = world.bound(pod(2), on=[[0]])
    world.deliver()
    assert await world.admit(third)
    assert known(world, one) == set(), "a quiet second may still come"


async def test_kubelet_is_not_asked_in_the_middle_of_a_pod() -> None:
    world = await world_with(8, 8)
    one, _ = await swapped(world)
    both = world.bound(pod(1, 1), on=[[0], [0]])
    world.deliver()

    async def first_container_has_its_own() -> None:
        minutes_pass(world)

    world.direct[names.GPU_MEM].meanwhile = first_container_has_its_own
    assert await world.admit(both)
    assert known(world, one) == set()
    assert world.units(both, "main-1") == {"GPU-0": 1}


async def test_a_kubelet_that_does_not_answer_is_not_waited_for_long() -> None:
    world = await world_with(8, 8)
    one, _ = await swapped(world)
    third = world.bound(pod(2), on=[[0]])
    world.deliver()

    async def never() -> list[Listed]:
        await asyncio.Event().wait()
        return []

    world.plugin.reconciler.ask = never
    minutes_pass(world)
    assert await world.admit(third)
    assert known(world, one) == set()
    assert world.units(third, "main-0") == {"GPU-0": 2}


async def test_who_went_otherwise_than_planned_is_said_while_kubelet_is_busy() -> None:
    world = await world_with(8, 8)
    uid = world.bound(pod(6), on=[[0]])
    world.deliver()
    world.set_gpus(facts(8, 8, unhealthy={0: "Xid 79"}))
    assert await world.admit(uid)
    with world.plugin.calls:  # kubelet asks something else already
        telling = asyncio.create_task(world.plugin.reconciler.run())
        async with asyncio.timeout(PATIENCE):
            while world.notes(uid)[names.ALIYUN_IDX] != "1":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
    assert world.notes(uid)[names.ALLOCATION] == '{"0":{"1":6}}'
    assert world.notes(uid)[names.ALIYUN_ASSIGNED] == "false", "kubelet has not said it yet"
