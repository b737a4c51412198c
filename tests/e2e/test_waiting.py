"""Pods that fit nowhere: they cost nothing while they wait."""

import asyncio
import collections

from tests.e2e import sight
from tests.e2e.figures import Figures
from tests.e2e.world import World

REFUSING_NODES = 63
QUIET_SECONDS = 30.0
OF_A_REFUSAL = 3  # writes: the condition, the scheduler's event, ours
CALLS = "gpushare_request_seconds_count"


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
    filters = after(CALLS, verb="choose") - before(CALLS, verb="choose")
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
