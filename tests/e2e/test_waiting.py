"""Pods that fit nowhere: they cost nothing while they wait, and do not wait for ever."""

import asyncio
import collections

from gpushare.core.facts import names
from tests.e2e.harness import events
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support import pod_watch

REFUSING_NODES = 63
QUIET_SECONDS = 30.0
OF_A_REFUSAL = 3  # writes: the condition, the scheduler's event, ours
CALLS = "gpushare_request_seconds_count"


async def test_a_pod_that_fits_nowhere_is_left_in_peace(world: World, figures: Figures) -> None:
    """It is of higher priority than everybody on all those nodes, so that each of them looks worth an eviction."""
    await world.make_nodes(REFUSING_NODES, gpus=[8000, 8000])
    low = [{"name": f"low-{i:03}", "containers": {"main": 5000}} for i in range(2 * REFUSING_NODES)]
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await world.watch.until_bound(*await world.make_pods(*low), seconds=60)
        await asyncio.sleep(3)  # events about what was just bound
        mark, before = world.cluster.audit.mark(), await world.metrics()
        (high,) = await world.make_pods({"name": "high", "containers": {"main": 6000}, "priority": 1000})
        await world.watch.until_refused(high)
        await asyncio.sleep(QUIET_SECONDS)
        after = await world.metrics()
    filters = after(CALLS, verb="choose") - before(CALLS, verb="choose")
    writes = collections.Counter(
        f"{request.verb} {request.kind} by {request.user.username.rpartition(':')[2]}"
        for request in world.requests(mark)
        if request.is_write
    )
    size = len(pod_watch.refusal(world.watch.pods[high]))
    figures.say(
        f"{REFUSING_NODES} nodes refuse a pod of the highest priority",
        f"until {QUIET_SECONDS:.0f} s later {filters:.0f} filter calls, {writes.total()} writes {dict(writes)}; "
        f"condition {size} bytes",
    )
    assert filters <= 1 + 2
    assert writes.total() <= OF_A_REFUSAL + 2, writes
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.watch.pods.values()), "nobody is evicted"


async def test_a_large_pod_gets_its_turn_in_a_stream_of_small_ones(world: World, figures: Figures) -> None:
    """Whenever a small pod ends, the next one waits already. The totals say that nothing is free, so that
    kube-scheduler does not even ask about the large one."""
    await world.make_nodes(1, gpus=[8000, 8000])
    small = [{"name": f"small-{i:02}", "containers": {"main": 2000}} for i in range(24)]
    async with world.cluster.extender("--patience", "3s"), world.cluster.scheduler(), world.kubelets():
        running = await world.make_pods(*small[:8])
        await world.watch.until_bound(*running)
        (large,) = await world.make_pods({"name": "large", "containers": {"main": 7000}})
        await world.watch.until_refused(large)
        said = await events.until_event(world, large, "GPUKept")
        pods = world.watch.pods
        await world.watch.until("noted", lambda: names.KEPT in pods[large]["metadata"].get("annotations", {}), 30)
        note = pods[large]["metadata"]["annotations"][names.KEPT]
        await world.make_pods(*small[8:])
        by_gpu = sorted(running, key=lambda name: world.watch.pods[name]["metadata"]["annotations"][names.ALIYUN_IDX])
        ended = 0
        for name in (name for pair in zip(by_gpu[:4], by_gpu[4:], strict=True) for name in pair):
            if large in world.watch.bound_at:
                break
            await world.delete_pod(name)
            await world.watch.until("gone", lambda name=name: name in world.watch.gone_at, 10)  # type: ignore[misc]
            await asyncio.sleep(1)
            ended += 1
            world.check_capacity()
        passed = len(world.watch.bound_at) - len(running) - 1
    figures.say("a large pod in a stream of small ones", f"{ended} ended and {passed} came before it: {said}")
    assert large in world.watch.bound_at
    assert note.startswith('{"node":"')
    assert passed >= 3, "the other GPU goes on"
