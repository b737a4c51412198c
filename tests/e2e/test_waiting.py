"""Pods that wait: bound soon after what they wait for is free, and quiet until then."""

import asyncio
import collections

from tests.e2e import sight
from tests.e2e.figures import Figures, distribution
from tests.e2e.world import World

ROUNDS = 20
REFUSING_NODES = 63
QUIET_SECONDS = 30.0
OF_A_REFUSAL = 3  # writes: the condition, the scheduler's event, ours
CALLS = "gpushare_request_seconds_count"


async def test_a_waiting_pod_is_bound_within_a_second_after_a_release(world: World, figures: Figures) -> None:
    """Totals suffice all the time and only one GPU is too full: kube-scheduler alone would see nothing change."""
    await world.make_nodes(1, gpus=[8000, 8000])
    waits = []
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        for turn in range(ROUNDS):
            holders = await world.make_pods(
                *({"name": f"holds-{turn}-{i}", "containers": {"main": 5000}} for i in range(2))
            )
            await world.sight.until_bound(*holders)
            (waiter,) = await world.make_pods({"name": f"waits-{turn}", "containers": {"main": 6000}})
            await world.sight.until_refused(waiter)
            await asyncio.sleep(0.3)  # whatever the refusal stirred up has settled
            await world.delete_pod(holders[0])
            await world.sight.until_bound(waiter)
            waits.append(world.sight.bound_at[waiter] - world.sight.gone_at[holders[0]])
            world.check_capacity()
            for name in (holders[1], waiter):
                await world.delete_pod(name)
            await world.sight.until("an empty node", lambda: not world.sight.pods, 10)
        metrics = await world.metrics()
    figures.say(
        "from a release to the waiting pod's binding",
        f"{distribution(waits)}; {metrics('gpushare_wake_ups_total'):.0f} wake-ups",
    )
    assert max(waits) < 1, sorted(waits)


async def test_a_pod_that_fits_nowhere_is_left_in_peace(world: World, figures: Figures) -> None:
    """It is of higher priority than everybody on all those nodes, so that each of them looks worth an eviction."""
    await world.make_nodes(REFUSING_NODES, gpus=[8000, 8000])
    low = [{"name": f"low-{i:03}", "containers": {"main": 5000}} for i in range(2 * REFUSING_NODES)]
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await world.sight.until_bound(*await world.make_pods(*low), seconds=60)
        await asyncio.sleep(3)  # events about what was just bound
        mark, before = world.cluster.audit.mark(), await world.metrics()
        (high,) = await world.make_pods({"name": "high", "containers": {"main": 6000}, "priority": 1000})
        await world.sight.until_refused(high)
        await asyncio.sleep(QUIET_SECONDS)
        after = await world.metrics()
    filters = after(CALLS, verb="filter") - before(CALLS, verb="filter")
    writes = collections.Counter(
        f"{request.verb} {request.kind} by {request.user.username.rpartition(':')[2]}"
        for request in world.requests(mark)
        if request.is_write
    )
    size = len(sight.refusal(world.sight.pods[high]))
    figures.say(
        f"{REFUSING_NODES} nodes refuse a pod of the highest priority",
        f"until {QUIET_SECONDS:.0f} s later {filters:.0f} filter calls, {writes.total()} writes {dict(writes)}; "
        f"condition {size} bytes",
    )
    assert filters <= 1 + 2
    assert writes.total() <= OF_A_REFUSAL + 2, writes
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.sight.pods.values()), "nobody is evicted"
