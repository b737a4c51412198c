"""Many pods of mixed sizes through the real kube-scheduler: all placed, each once, nothing given twice."""

import asyncio
import collections
import random
import time

import pytest

from tests.e2e.harness import shipped
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import Metrics, World, gpus_of
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


@pytest.mark.parametrize(
    ("pin", "verb", "policy"),
    [("direct", "choose", "binpack"), ("plugin", "choose", "binpack"), ("direct", "filter", "binpack"),
     ("direct", "choose", "vrc"), ("direct", "filter", "fgd")],
)  # fmt: skip
async def test_three_hundred_pods_are_placed_once_each_and_nothing_is_given_twice(
    world: World, figures: Figures, pin: str, verb: str, policy: str
) -> None:
    await world.make_nodes(NODES, gpus=GPUS, pin=pin)
    pods = mixed_pods(PODS, direct=pin == "direct")
    mark = world.cluster.audit.mark()
    extender, asks = world.cluster.extender(f"--policy={policy}"), {"filterVerb": verb}
    async with extender, world.cluster.scheduler(extender=asks), world.kubelets():
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
        f"{PODS} pods over {NODES} nodes × {len(GPUS)} GPUs, pinned by {pin}, {policy}",
        f"{took:.1f} s, {used} nodes used, {asked:.0f} {verb} calls, {len(bindings)} bindings, "
        f"holds right {holds['right']:.0f}, wrong {holds['wrong']:.0f}, conflicts 0",
    )


async def test_policies_that_pack_say_where_a_pod_would_go_and_go_on_after_a_restart(world: World) -> None:
    nodes = await world.make_various_nodes([{"gpus": [total] * 2, "pin": "direct"} for total in (16000, 24000, 80000)])
    sizes = [(size, cpu) for size in (2000, 6000, 12000) for cpu in ("1", "2500m")]
    made: list[Object] = [
        {"name": f"first-{i}", "direct": True, "containers": {"main": {"mem": size, "cpu": cpu}}}
        | ({"policy": "fgd"} if i % 3 == 0 else {})
        for i, (size, cpu) in enumerate(sizes)
    ]
    web = {"name": "web", "containers": {"main": {"cpu": "40"}}, "node": nodes[0]}
    async with world.cluster.extender("--policy=vrc"), world.cluster.scheduler():
        await world.make_pods(web, *made)
        await world.watch.until_bound(*[pod["name"] for pod in made])
    async with world.cluster.extender("--policy=vrc"), world.cluster.scheduler():
        for policy in ("vrc", "fgd", "best-fit"):
            pod = {"name": policy, "direct": True, "policy": policy, "containers": {"main": {"mem": 5000, "cpu": "2"}}}
            draft = world.pod_of(pod)
            draft["metadata"]["namespace"] = world.api.namespace
            (way,) = (await world.ask("explain", draft))["ways"]
            await world.make_pods(pod)
            await world.watch.until_bound(policy)
            shown = world.watch.pods[policy]
            assert (way["node"], [spot["gpu"] for spot in way["spots"]]) == (
                shown["spec"]["nodeName"], sorted(gpus_of(shown)),
            )  # fmt: skip
    world.check_capacity()
