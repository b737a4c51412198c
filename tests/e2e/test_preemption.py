"""What is promised to a pod stays its own until it comes: over a slow volume, and over the end of those it evicted.

And preemption, which kube-scheduler decides by totals, frees a GPU; where it cannot, it evicts nobody.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from gpushare.core.ledger import holding
from tests.e2e.harness import timed
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World, gpus_of
from tests.support import pod_watch
from tests.support.objects import Object

SLOWLY = holding.ASSUME_SECONDS + 4  # longer than any hold but that of a pod with volumes
ENDING_SECONDS = 4.0
BOUND_SECONDS = 5.0  # once nothing is in the way
WATCHED_SECONDS = 6.0  # for what should not happen


def _asks(name: str, units: int, priority: int = 0, **words: object) -> Object:
    return {"name": name, "containers": {"main": units}, "priority": priority, **words}


def _gpu(world: World, name: str) -> int:
    """The one GPU that a bound pod is on."""
    (gpu,) = gpus_of(world.watch.pods[name])
    return gpu


def _evicted(world: World) -> set[str]:
    leaving = {name for name, pod in world.watch.pods.items() if "deletionTimestamp" in pod["metadata"]}
    return leaving | world.watch.gone_at.keys()


# Volumes


@contextlib.asynccontextmanager
async def _slow_volumes(world: World) -> AsyncIterator[str]:
    """A storage class whose provisioner does nothing; the claim `data` of it."""
    name = f"slow-{world.api.namespace}"
    storage_class = {
        "metadata": {"name": name},
        "provisioner": "e2e.invalid/slow",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    await world.api.create(classes, storage_class)
    await world.api.create(f"/api/v1/namespaces/{world.api.namespace}/persistentvolumeclaims", claim)
    try:
        yield name
    finally:
        await world.api.call("DELETE", f"{classes}/{name}")
        await world.api.call("DELETE", f"/api/v1/persistentvolumes/{name}")


async def _provide(world: World, storage_class: str) -> None:
    """What the provisioner should have done long ago."""
    volume = {
        "metadata": {"name": storage_class},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": world.api.namespace, "name": "data"},
            "hostPath": {"path": "/nowhere"},
        },
    }
    await world.api.create("/api/v1/persistentvolumes", volume)


async def test_what_is_held_stays_held_while_a_volume_is_slow(world: World, figures: Figures) -> None:
    """Totals have room for the others all the time; only the hold says that no GPU has."""
    await world.make_nodes(1, gpus=[8000, 8000])
    async with (
        _slow_volumes(world) as storage_class,
        world.cluster.extender(),
        world.cluster.scheduler(),
        world.kubelets(),
    ):
        (slow,) = await world.make_pods(_asks("slow", 5000, claim=True))
        await world.watch.until("a node for the pod", lambda: bool(_nominated(world, slow)), 30)
        held = time.monotonic()
        (quick,) = await world.make_pods(_asks("quick", 5000))
        await world.watch.until_bound(quick)
        (early,) = await world.make_pods(_asks("early", 5000))
        await world.watch.until_refused(early)
        await asyncio.sleep(SLOWLY - (time.monotonic() - held))
        (late,) = await world.make_pods(_asks("late", 5000))
        await world.watch.until_refused(late)
        await _provide(world, storage_class)
        await world.watch.until_bound(slow, seconds=30)
        took = world.watch.bound_at[slow] - held
        metrics = await world.metrics()
        world.check_capacity()
        assert {_gpu(world, slow), _gpu(world, quick)} == {0, 1}
        assert not pod_watch.node_of(world.watch.pods[early]) + pod_watch.node_of(world.watch.pods[late])
    holds = {outcome: metrics("gpushare_holds_total", outcome=outcome) for outcome in ("right", "wrong")}
    figures.say(
        "a hold over a slow volume",
        f"kept for {took:.0f} s, refused to 2 others, then bound where it was held; conflicts 0",
    )
    assert holds == {"right": 2, "wrong": 0}
    assert metrics("gpushare_bind_conflicts_total") == 0


# Preemption


def _nominated(world: World, name: str) -> str:
    return str(world.watch.pods.get(name, {}).get("status", {}).get("nominatedNodeName", ""))


@timed.repeated_once
async def test_what_an_eviction_frees_goes_to_nobody_else(world: World, figures: Figures) -> None:
    """While the victim ends, others are placed by totals that suffice for them. On its GPU they would be in the way:
    no other has room for the pod that evicted it."""
    await world.make_nodes(1, gpus=[8000] * 4)
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets(ENDING_SECONDS):
        await _bind_in_turn(world, _asks("victim", 5000))
        for number in range(3):
            await _bind_in_turn(world, _asks(f"stays-{number}", 5000, 1000))
        fillers = [_asks(f"goes-{number}", 3000, 1000) for number in range(4)]
        await _bind_in_turn(world, *fillers)
        beside = next(words["name"] for words in fillers if _gpu(world, words["name"]) == _gpu(world, "victim"))
        freed = _gpu(world, "victim")
        await world.delete_pod(beside)
        (first,) = await world.make_pods(_asks("first", 8000, 500))
        await world.watch.until("a nomination", lambda: bool(_nominated(world, first)), 15)
        for words in fillers:
            if words["name"] != beside:
                await world.delete_pod(words["name"])
        others = await world.make_pods(*(_asks(f"other-{i}", 1000, 500 * (i % 2)) for i in range(4)))
        await world.watch.until_bound(*others)
        assert "victim" in world.watch.pods, "it still ends"
        await world.watch.until_bound(first, seconds=60)
        took = world.watch.bound_at[first] - world.watch.gone_at["victim"]
        world.check_capacity()
        assert _gpu(world, first) == freed
        assert freed not in {_gpu(world, name) for name in others}
        assert _evicted(world) == {"victim", *(words["name"] for words in fillers)}
    timed.tell(
        figures,
        "a nominated pod",
        f"bound {took * 1000:.0f} ms after its victim was gone; {len(others)} others of equal and lower priority were "
        f"bound meanwhile, none of them on that GPU",
        in_time=took < BOUND_SECONDS,
    )


async def _bind_in_turn(world: World, *pods: Object) -> None:
    for words in pods:
        await world.watch.until_bound(*await world.make_pods(words))


async def _two_full_gpus(world: World, staying: int) -> None:
    """On each GPU 5000 of this priority and 3000 of none. By totals the 3000s are the ones to evict for 6000."""
    await world.make_nodes(1, gpus=[8000, 8000])
    await _bind_in_turn(world, *(_asks(f"large-{number}", 5000, staying) for number in range(2)))
    await _bind_in_turn(world, *(_asks(f"small-{number}", 3000) for number in range(2)))
    assert _gpu(world, "large-0") != _gpu(world, "large-1")
    assert _gpu(world, "small-0") != _gpu(world, "small-1")


async def test_preemption_frees_a_gpu_and_not_only_a_total(world: World, figures: Figures) -> None:
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets(1.0):
        await _two_full_gpus(world, staying=100)
        (first,) = await world.make_pods(_asks("first", 6000, 500))
        await world.watch.until_bound(first, seconds=30)
        await asyncio.sleep(1)
        world.check_capacity()
        evicted = _evicted(world)
        metrics = await world.metrics()
        asked = metrics("gpushare_request_seconds_count", verb="preempt")
    figures.say("two victims by totals, and no GPU free for the pod", f"evicted {', '.join(sorted(evicted))}")
    assert asked >= 1
    assert {"small-0", "small-1"} < evicted
    assert len(evicted) == 3


async def test_preemption_evicts_nobody_where_no_gpu_would_come_free(world: World, figures: Figures) -> None:
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await _two_full_gpus(world, staying=1000)
        (first,) = await world.make_pods(_asks("first", 6000, 500))
        await world.watch.until_refused(first)
        await asyncio.sleep(WATCHED_SECONDS)
        asked = (await world.metrics())("gpushare_request_seconds_count", verb="preempt")
        evicted, said = _evicted(world), pod_watch.refusal(world.watch.pods[first])
    figures.say(
        "victims by totals would free no GPU", f"asked {asked:.0f} times, evicted {len(evicted)}; the pod waits: {said}"
    )
    assert asked >= 1
    assert evicted == set()
    assert not pod_watch.node_of(world.watch.pods[first])
