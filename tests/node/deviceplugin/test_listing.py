"""What is listed to kubelet: which ids, which of them healthy, and how much of it a kubelet takes."""

import asyncio
from collections import Counter

import pytest

from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, Unit
from gpushare.gpu import health, simulated
from gpushare.gpu.device import Xid
from gpushare.gpu.health import Health
from gpushare.kubelet import unit_ids
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.kubelet.pb.methods import LIST_LIMIT
from gpushare.kubelet.unit_ids import Catalog
from gpushare.node.deviceplugin import device_list
from gpushare.node.publishing import desired
from gpushare.node.publishing.desired import PublishConfig
from gpushare.obs.errors import UserError
from tests.node.deviceplugin.made import NODE, facts, pod
from tests.node.deviceplugin.world import World, world_with


def listed(catalog: Catalog, gpus: tuple[Gpu, ...], *, healthy: bool) -> list[messages.Device]:
    units = {gpu.uuid: (1 << gpu.total) - 1 if healthy else 0 for gpu in gpus}
    body = device_list.memory(gpus, catalog.keys, units, catalog.numbered)
    assert len(body) <= LIST_LIMIT
    return list(messages.ListAndWatchResponse.FromString(body).devices)


@pytest.mark.parametrize("healthy", [True, False])
def test_eight_gpus_of_24_gib_in_mib_fit_one_message_healthy_or_unhealthy(healthy: bool) -> None:
    gpus = facts(*[24_576] * 8).gpus
    catalog = Catalog("MiB")
    catalog.know(gpus)
    devices = listed(catalog, gpus, healthy=healthy)
    assert len({device.ID for device in devices}) == 196_608
    assert {device.health == "Healthy" for device in devices} == {healthy}


@pytest.mark.parametrize(
    ("totals", "unit", "why", "way"),
    [
        (
            [81_920] * 8,
            "MiB",
            "8 GPUs of 81920 MiB are 655,360 units; a device plugin can list about 210,000",
            "--pin=direct (Kubernetes 1.36 or later), or --memory-unit=GiB (640 units)",
        ),
        (
            [200_000, 16_384],
            "MiB",
            "GPUs of 200000 + 16384 MiB are 216,384 units; a device plugin can list about 210,000",
            "--pin=direct (Kubernetes 1.36 or later), or --memory-unit=GiB (211 units)",
        ),
        (
            [300_000],
            "GiB",
            "1 GPU of 300000 GiB are 300,000 units; a device plugin can list about 210,000",
            "--pin=direct (Kubernetes 1.36 or later)",
        ),
    ],
)
def test_a_node_with_more_units_than_kubelet_takes_is_refused_with_the_numbers(
    totals: list[int], unit: Unit, why: str, way: str
) -> None:
    with pytest.raises(UserError) as caught:
        World(*totals, unit=unit)
    assert (caught.value.what, caught.value.why, caught.value.way) == (
        f"gpu-a: --memory-unit={unit} is too fine for this node", why, way,
    )  # fmt: skip


def test_a_lost_card_leaves_the_ids_of_the_others_alone() -> None:
    catalog = Catalog("MiB")
    catalog.know(facts(4, 4, 4).gpus)
    before = catalog.names({"GPU-2": 0b1111})
    catalog.know(facts(4, 4, 4, lost=[0, 1]).gpus)
    assert catalog.names({"GPU-2": 0b1111}) == before
    alone = Catalog("MiB")
    alone.know(facts(4, 4, 4, lost=[0, 1]).gpus)
    assert alone.names({"GPU-2": 0b1111}) == before, "also after a restart"


def colliding() -> tuple[str, str]:
    """Two uuids whose hashes begin alike, the smaller one first."""
    found: dict[str, str] = {}
    for number in range(100_000):
        uuid = f"GPU-{number:06}"
        first = unit_ids.keys([uuid], "MiB", {})[uuid]
        if first in found:
            return found[first], uuid
        found[first] = uuid
    raise AssertionError("no two of them")


def test_of_two_gpus_whose_keys_collide_the_larger_uuid_takes_the_next_characters() -> None:
    smaller, larger = colliding()
    keys = unit_ids.keys([larger, smaller], "MiB", {})
    assert keys[smaller] == unit_ids.keys([smaller], "MiB", {})[smaller]
    assert keys[larger] != keys[smaller]
    assert len(keys[larger]) == 3
    assert unit_ids.keys([larger], "MiB", keys)[larger] == keys[larger], "and keeps them when the other is lost"


async def test_a_key_that_gave_way_to_a_lost_gpu_is_kept_over_a_restart() -> None:
    """kubelet knows running pods by it."""
    smaller, larger = colliding()
    both = NodeFacts(NODE, "MiB", Pin.PLUGIN, (Gpu(0, smaller, 8), Gpu(1, larger, 8)))
    world = World(8)
    world.set_gpus(both)
    await world.begin()
    await world.run(pod(3), on=[[1]])
    await world.settled()
    before = [
        name for name in await world.devices(names.GPU_MEM) if name.startswith(world.plugin.state.catalog.keys[larger])
    ]
    world.facts = NodeFacts(NODE, "MiB", Pin.PLUGIN, both.gpus[1:])
    world.start_plugin()
    await world.begin()
    assert list(await world.devices(names.GPU_MEM)) == before
    assert world.plugin.held() == {larger: 3}


def test_a_node_that_counts_otherwise_has_other_ids() -> None:
    """kubelet remembers pods by them: units of one size must not be taken for units of another."""
    assert unit_ids.keys(["GPU-0"], "MiB", {}) != unit_ids.keys(["GPU-0"], "GiB", {})


async def test_of_an_unhealthy_gpu_the_free_units_are_listed_unhealthy_and_the_held_ones_healthy() -> None:
    world = await world_with(8, 8)
    await world.run(pod(3), on=[[1]])
    world.set_gpus(facts(8, 8, unhealthy={1: "XID 79"}))
    devices = await world.devices(names.GPU_MEM)
    assert Counter(devices.values()) == {True: 11, False: 5}, "listed, not left out"
    held = world.plugin.state.catalog.names({"GPU-1": 0b111})
    assert all(devices[name] for name in held)
    assert await world.devices(names.GPU_COUNT) == {"GPU-0": True, "GPU-1": False}


async def test_an_unhealthy_gpu_that_somebody_has_wholly_stays_listed_healthy() -> None:
    world = await world_with(8, 8)
    await world.run(pod(whole=1), on=[[1]])
    world.set_gpus(facts(8, 8, unhealthy={1: "XID 79"}))
    assert await world.devices(names.GPU_COUNT) == {"GPU-0": True, "GPU-1": True}
    assert Counter((await world.devices(names.GPU_MEM)).values()) == {True: 8, False: 8}


async def test_units_held_under_foreign_ids_stay_listed_healthy_in_number_on_an_unhealthy_gpu() -> None:
    world = World(8, 8)
    old = world.bound(pod(5), on=[[1]])
    world.given_before(old, "main-0", [f"GPU-1-_-{j}" for j in range(5)])
    world.start_plugin()
    await world.begin()
    world.set_gpus(facts(8, 8, unhealthy={1: "XID 79"}))
    assert Counter((await world.devices(names.GPU_MEM)).values()) == {True: 13, False: 3}


async def test_xid_79_withdraws_free_memory_only_and_recovery_returns_it_while_xid_31_does_nothing() -> None:
    """From the driver's report to what kubelet is told."""
    world = await world_with(8, 8)
    await world.run(pod(3), on=[[1]])
    devices = [simulated.device(i, f"GPU-{i}", 8) for i in range(2)]
    judge, config = Health(), PublishConfig(NODE, "MiB", Pin.PLUGIN)

    async def healthy_at(now: float) -> int:
        judge.see(devices, now)
        pods = [seen.facts for seen in world.watched.pods.values()]
        world.set_gpus(desired.wanted(config, devices, judge.unhealthy(), world.facts.gpus, pods, "ready").facts)
        return Counter((await world.devices(names.GPU_MEM)).values())[True]

    assert await healthy_at(0) == 16
    judge.xid(Xid("GPU-1", 31), 1)
    assert await healthy_at(1) == 16
    judge.xid(Xid("GPU-1", 79), 2)
    assert await healthy_at(2) == 11
    assert await healthy_at(2 + health.RECOVERY_SECONDS / 2) == 11
    assert await healthy_at(3 + health.RECOVERY_SECONDS) == 16


async def test_the_list_is_sent_again_only_when_it_changed() -> None:
    world = await world_with(8)
    messages = world.plugin.services[names.GPU_MEM].lists()
    await anext(messages)
    following = asyncio.ensure_future(anext(messages))
    await world.run(pod(3))
    await asyncio.sleep(0)
    assert not following.done(), "what is held on a healthy GPU changes nothing"
    world.set_gpus(facts(8, unhealthy={0: "XID 79"}))
    assert await following
