"""kube-schedulers as people have them: two at once, one that has a gpushare of its own, one that was set up for
Aliyun's gpushare; and what a pod is told that none of them can place."""

import asyncio
import collections
import contextlib
import itertools
import time
from collections.abc import AsyncIterator

import pytest
import yaml

from gpushare.core.explain import event_texts
from gpushare.core.facts import names
from gpushare.extender import watches
from tests.e2e.harness import events, shipped
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.processes import Process
from tests.e2e.harness.world import World
from tests.support import pod_watch
from tests.support.objects import Object

SECOND = "gpu-scheduler"
OF_SECOND = "gpu-scheduler.yaml"
NODES, GPUS = 16, [16000] * 4
ODD = 6000  # two fit a GPU of 16000; by its total alone, a node of two such GPUs would take a fifth pod
ANOTHER_PORT = 12346
ORIGINALS_PORT = 32766
ORIGINALS_ENTRY = {  # word for word
    "urlPrefix": f"http://127.0.0.1:{ORIGINALS_PORT}/gpushare-scheduler",
    "filterVerb": "filter",
    "bindVerb": "bind",
    "enableHTTPS": False,
    "nodeCacheCapable": True,
    "managedResources": [{"name": names.GPU_MEM, "ignoredByScheduler": False}],
    "ignorable": False,
}
FILLING = {
    "name": "NodeResourcesFit",
    "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": names.GPU_MEM, "weight": 1}]}},
}
SCORES: dict[str, Object] = {
    "with kube-scheduler's own scores": {},
    "with scores that fill node after node": {
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [FILLING]}]
    },
}
ASKED = "gpushare_request_seconds_count"


@contextlib.asynccontextmanager
async def second_scheduler(world: World) -> AsyncIterator[Process]:
    """As its manifest has it: the configuration of the ConfigMap, the rights of the account it shares."""
    cluster = world.cluster
    rights = [d for d in shipped.rights(OF_SECOND) if d["metadata"]["labels"]["component"] == SECOND]
    (config_map,) = (d for d in shipped.documents(OF_SECOND) if d["kind"] == "ConfigMap")
    configuration = yaml.safe_load(config_map["data"]["config.yaml"])
    account = await cluster.account_kubeconfig(shipped.NAMESPACE, shipped.EXTENDER)
    await cluster.apply(*rights)
    try:
        changes = {**configuration, "clientConnection": {"kubeconfig": str(account)}}
        async with cluster.scheduler(name=SECOND, **changes) as process:
            yield process
    finally:  # the account has its own rights only, for the tests after this one
        for document in rights:
            await cluster.kubectl("delete", document["kind"], document["metadata"]["name"], f"-n{shipped.NAMESPACE}")


def _pods(count: int, units: int, prefix: str, scheduler: str = "default-scheduler") -> list[Object]:
    return [{"name": f"{prefix}-{i:03}", "containers": {"main": units}, "scheduler": scheduler} for i in range(count)]


async def test_two_schedulers_at_once_on_one_extender_give_no_gpu_twice(world: World, figures: Figures) -> None:
    """More pods than there is room for, of a size that only the extender can count."""
    await world.make_nodes(NODES, gpus=GPUS)
    room, waiting = NODES * len(GPUS) * 2, 12
    firsts, seconds = (_pods((room + waiting) // 2, ODD, *of) for of in (("first",), ("second", SECOND)))
    mark = world.cluster.audit.mark()
    async with world.cluster.extender(), world.cluster.scheduler(), second_scheduler(world), world.kubelets():
        await world.watch.until_bound(*await world.make_pods(firsts[0], seconds[0]), seconds=30)  # both lead by now
        started = time.monotonic()
        made = await world.make_pods(*(pod for pair in zip(firsts[1:], seconds[1:], strict=True) for pod in pair))
        pods = world.watch.pods
        await world.watch.until(
            f"{room} bound, {waiting} refused",
            lambda: len(world.watch.bound_at) >= room and sum(map(_waits, pods.values())) >= waiting,
            60,
        )
        took, metrics = time.monotonic() - started, await world.metrics()

    world.check_capacity()
    bound = sorted(world.watch.bound_at, key=world.watch.bound_at.__getitem__)
    assert len(bound) == room == len(world.granted()) * 2, "every GPU has its two"
    assert _bindings(world, mark) == {name: [201] for name in bound}
    turns = sum(one.partition("-")[0] != other.partition("-")[0] for one, other in itertools.pairwise(bound))
    assert turns > len(made) / 20, "they had to be at it at the same time"
    used = _check_rights_of_second(world, mark)
    figures.say(
        f"two schedulers on one extender: {len(made) + 2} pods of {ODD}, {NODES} nodes × {len(GPUS)} GPUs of {GPUS[0]}",
        f"{took:.1f} s, {len(bound)} bound, one binding each, in turn {turns} times, {waiting} wait; "
        f"{metrics('gpushare_bind_conflicts_total'):.0f} conflicts; the second's lease: {used}",
    )


def _check_rights_of_second(world: World, mark: int) -> dict[str, int]:
    """The account that it shares with the extender lacks nothing; what it did with its own lease."""
    done = [r for r in world.cluster.audit.since(mark) if r.user.username == shipped.EXTENDER_USER]
    assert [(r.verb, r.kind) for r in done if r.lacks_right] == []
    used = collections.Counter(r.verb for r in done if (r.kind, r.object_ref.name) == ("leases", SECOND))
    (role,) = (d for d in shipped.rights(OF_SECOND) if d["kind"] == "Role" and d["metadata"]["name"] == SECOND)
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= used.keys(), "granted, and never used"
    return dict(used)


async def test_a_second_extender_is_noticed_by_both(world: World, figures: Figures) -> None:
    await world.make_nodes(2, gpus=[8000, 8000])
    extender, scheduler = world.cluster.extender, world.cluster.scheduler
    entry = {"urlPrefix": f"http://127.0.0.1:{ANOTHER_PORT}/gpushare-scheduler"}
    async with (
        extender(), extender(name="second-extender", port=ANOTHER_PORT),
        scheduler(), scheduler(name=SECOND, extender=entry), world.kubelets(),
    ):  # fmt: skip
        await asyncio.sleep(watches.SETTLE_SECONDS + 1)  # what is bound before could be its predecessor's
        await world.make_pods(*_pods(1, 1000, "ours"), *_pods(1, 1000, "theirs", SECOND))
        await world.watch.until_bound("ours-000", "theirs-000", seconds=20)
        said = [await events.until_event(world, pod, event_texts.SECOND_EXTENDER) for pod in ("ours-000", "theirs-000")]
        counted = [
            (await world.metrics(port))("gpushare_second_extender_total")
            for port in (shipped.EXTENDER_PORT, ANOTHER_PORT)
        ]
    world.check_capacity()
    assert counted == [1, 1]
    binders = {pod["metadata"]["annotations"][names.EXTENDER] for pod in world.watch.pods.values()}
    assert len(binders) == 2
    assert all(any(binder in sentence for sentence in said) for binder in binders)
    figures.say("a second extender", f"found by both, {counted} pods counted; event: {said[0]}")


@pytest.mark.parametrize("scores", SCORES)
async def test_aliyuns_scheduler_configuration_drives_ours(world: World, figures: Figures, scores: str) -> None:
    """It never says where a pod will go before it binds, so that two may be sent to a GPU that has room for one."""
    small, large = await world.make_nodes(12, gpus=GPUS[:2]), await world.make_nodes(6, gpus=GPUS[:2] * 3)
    pods = _pods(2 * (len(small) * 2 + len(large) * 6), ODD, "pod")
    mark = world.cluster.audit.mark()
    ports = ("--port", str(shipped.EXTENDER_PORT), str(ORIGINALS_PORT))
    async with (
        world.cluster.extender(*ports),
        world.cluster.scheduler(extenders=[ORIGINALS_ENTRY], percentageOfNodesToScore=0, **SCORES[scores]),
        world.kubelets(),
    ):
        started = time.monotonic()
        made = await world.make_pods(*pods)
        await world.watch.until_bound(*made, seconds=90)
        took, metrics = time.monotonic() - started, await world.metrics()

    world.check_capacity()
    assert _bindings(world, mark) == {name: [201] for name in made}
    assert metrics(ASKED, verb="prioritize") == metrics(ASKED, verb="preempt") == 0
    conflicts = metrics("gpushare_bind_conflicts_total")
    figures.say(
        f"Aliyun's extender entry, {scores}: {len(made)} pods of {ODD} fill {len(small) + len(large)} nodes",
        f"{took:.1f} s, all placed, one binding each, {metrics(ASKED, verb='filter'):.0f} filter calls, "
        f"conflicts (a GPU that was full by then, refused, tried again): {conflicts:.0f}",
    )


def _waits(pod: Object) -> bool:
    return not pod_watch.node_of(pod) and bool(pod_watch.refusal(pod))


def _bindings(world: World, mark: int) -> dict[str, list[int]]:
    """By pod, how each binding was answered."""
    found = collections.defaultdict(list)
    for request in world.requests(mark):
        if request.kind == "pods/binding":
            found[request.object_ref.name].append(request.response_status.code)
    return dict(found)


# Pods that nobody can place


async def test_a_request_above_every_gpu_is_explained_in_the_condition_and_by_an_event(
    world: World, figures: Figures
) -> None:
    """The node's total would do, so that the scheduler asks."""
    await world.make_nodes(3, gpus=[8000, 8000])
    async with world.cluster.extender(), world.cluster.scheduler():
        await world.make_pods({"name": "large", "containers": {"main": 10000}})
        await world.watch.until_refused("large", seconds=20)
        condition = pod_watch.refusal(world.watch.pods["large"])
        event = await events.until_event(world, "large", event_texts.NEVER_FITS)
        of_scheduler = await events.until_event(world, "large", "FailedScheduling")
    assert "3 no GPU is as large as 10000 MiB" in condition
    assert "3 no GPU is as large as 10000 MiB" in of_scheduler
    assert event.startswith("No GPU is as large as 10000 MiB; the largest is 8000 MiB")
    figures.say("more than any GPU has", f"condition: {condition} Event: {event}")


async def test_a_pod_that_the_scheduler_never_asks_about_is_explained_by_our_event(
    world: World, figures: Figures
) -> None:
    """Totals are short, so that the scheduler refuses it by itself."""
    await world.make_nodes(1, gpus=[8000, 8000])
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await world.watch.until_bound(*await world.make_pods(*_pods(2, 7500, "full")), seconds=20)
        before = await world.metrics()
        await world.make_pods(
            {"name": "bytes", "containers": {"main": "4Gi"}}, {"name": "waits", "containers": {"main": 2000}}
        )
        await world.watch.until_refused("bytes", "waits", seconds=20)
        of_bytes = await events.until_event(world, "bytes", event_texts.INVALID)
        of_full = await events.until_event(world, "waits", event_texts.NO_GPU_FITS)
        after = await world.metrics()
    conditions = {name: pod_watch.refusal(world.watch.pods[name]) for name in ("bytes", "waits")}
    assert all(f"Insufficient {names.GPU_MEM}" in condition for condition in conditions.values())
    assert after(ASKED, verb="choose") == before(ASKED, verb="choose"), "nobody asked"
    assert f"{names.GPU_MEM} counts MiB, not bytes" in of_bytes
    assert 'Write "4096"' in of_bytes
    assert of_full.startswith("No single GPU has 2000 MiB free. Closest:")
    figures.say("never asked about, a request in bytes", f"condition: {conditions['bytes']} Event: {of_bytes}")
    figures.say("never asked about, a full cluster", f"condition: {conditions['waits']} Event: {of_full}")


async def test_a_pod_kept_to_some_nodes_is_told_the_reason_of_those_though_others_have_room(
    world: World, figures: Figures
) -> None:
    full, _, dedicated = await world.make_various_nodes(
        [{"gpus": [8000], "labels": {"disk": "ssd"}}, {"gpus": [8000]}, {"gpus": [8000], "labels": {"disk": "ssd"}}]
    )
    taints = [{"key": "dedicated", "value": "train", "effect": "NoSchedule"}]
    assert (await world.api.patch(f"/api/v1/nodes/{dedicated}", {"spec": {"taints": taints}})).code == 200
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        fills = {"name": "fills", "containers": {"main": 5000}, "affinity": [f"metadata.name In {full}"]}
        await world.watch.until_bound(*await world.make_pods(fills), seconds=20)
        kept: dict[str, Object] = {
            "selected": {"selector": {"disk": "ssd"}},
            "affine": {"affinity": ["disk In nvme", "disk Exists"]},
            "homeless": {"selector": {"disk": "tape"}},
        }
        await world.make_pods(*({"name": name, "containers": {"main": 6000}} | words for name, words in kept.items()))
        await world.watch.until_refused(*kept, seconds=20)
        said = {name: await events.until_event(world, name, event_texts.NO_GPU_FITS) for name in kept}
    closest = f"Closest: {full} GPU 0, 3000 of 8000 MiB free, 3000 short."
    for name in ("selected", "affine"):
        assert said[name].startswith(f"It may use 1 of 3 GPU nodes: no single GPU has 6000 MiB free. {closest}"), said
    assert said["homeless"].startswith(event_texts.NONE_ALLOWED)
    figures.say("a pod kept to a full node, others have room", said["selected"])
