"""Many pods of mixed sizes through the real kube-scheduler: all placed, each once, nothing given twice."""

import asyncio
import collections
import random
import time

import pytest

from tests.e2e.harness import shipped
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import Metrics, World
from tests.support import pod_watch
from tests.support.objects import Object

NODES, GPUS, PODS = 30, [16000] * 4, 300
SIZES = (500, 1000, 2000, 4000, 7000, 10000)


def mixed_pods(count: int, *, direct: bool) -> list[Object]:
    """Of twenty pods one asks for a whole GPU, two for one amount over two GPUs, two have two containers."""
    chance = random.Random(36)
    pods: list[Object] = []
    for number in range(count):
        words: Object = {"name": f"pod-{number:04}", "direct": direct}
        match number % 20:
            case 0:
                words["containers"] = {"main": {"count": 1}}
            case 1 | 2:
                words |= {"containers": {"main": 8000}, "split": 2}
            case 3 | 4:
                words["containers"] = {"main": 3000, "helper": 2000}
            case _:
                words["containers"] = {"main": chance.choice(SIZES)}
        pods.append(words)
    chance.shuffle(pods)
    return pods


async def _when_counted(world: World) -> Metrics:
    """The watch may show the last binding before the extender has its answer."""
    async with asyncio.timeout(pod_watch.PATIENCE):
        while (metrics := await world.metrics())("gpushare_bound_total") < PODS:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return metrics


@pytest.mark.parametrize(("pin", "verb"), [("direct", "choose"), ("plugin", "choose"), ("direct", "filter")])
async def test_three_hundred_pods_are_placed_once_each_and_nothing_is_given_twice(
    world: World, figures: Figures, pin: str, verb: str
) -> None:
    await world.make_nodes(NODES, gpus=GPUS, pin=pin)
    pods = mixed_pods(PODS, direct=pin == "direct")
    mark = world.cluster.audit.mark()
    async with world.cluster.extender(), world.cluster.scheduler(extender={"filterVerb": verb}), world.kubelets():
        started = time.monotonic()
        made = await world.make_pods(*pods)
        await world.watch.until_bound(*made, seconds=120)
        took = time.monotonic() - started
        metrics = await _when_counted(world)

    world.check_capacity()
    bindings = [request for request in world.requests(mark) if request.kind == "pods/binding"]
    assert {request.response_status.code for request in bindings} == {201}
    assert collections.Counter(request.object_ref.name for request in bindings) == dict.fromkeys(made, 1)
    assert {request.user.username for request in bindings} == {shipped.EXTENDER_USER}
    assert metrics("gpushare_bound_total") == PODS
    assert metrics("gpushare_bind_conflicts_total") == 0
    holds = {outcome: metrics("gpushare_holds_total", outcome=outcome) for outcome in ("right", "wrong")}
    assert holds == {"right": PODS, "wrong": 0}
    asked = metrics("gpushare_request_seconds_count", verb=verb)
    used = len({pod_watch.node_of(pod) for pod in world.watch.pods.values()})
    figures.say(
        f"{PODS} pods over {NODES} nodes × {len(GPUS)} GPUs, pinned by {pin}",
        f"{took:.1f} s, {used} nodes used, {asked:.0f} {verb} calls, {len(bindings)} bindings, "
        f"holds right {holds['right']:.0f}, wrong {holds['wrong']:.0f}, conflicts 0",
    )
