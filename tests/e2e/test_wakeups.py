"""A waiting pod is bound soon after what it waits for is there, whatever that is.

In all of these a node's totals suffice all the time and only single GPUs are too full, so that kube-scheduler alone
often sees nothing change: whoever is bound was woken by us.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence

from gpushare.core.facts import names
from gpushare.core.ledger import holding
from tests.e2e.harness import objects, timed
from tests.e2e.harness.figures import Figures, distribution
from tests.e2e.harness.world import World
from tests.support import pod_watch
from tests.support.objects import Object

RELEASES, OTHERS, HOLDS = 50, 6, 6
SOON, LATEST = 1.0, 5.0  # seconds: nine of ten times, and always
NO_BACK_OFF = (1, 33)  # from then on an idle kube-scheduler tries a woken pod at once
# Before, it waits until the pod's back-off is over: 2 s after a second try, and it looks once a second.
BACK_OFF, TURNS = 3.0, 6
SETTLING = 0.3  # seconds; whatever a refusal stirred up
GPUS = [8000, 8000]
BROAD, LARGEST_CONDITION = 1000, 2048  # nodes; bytes
Cause = Callable[[], Awaitable[object]]


async def _from_cause_to_binding(world: World, waiter: str, units: int, cause: Cause) -> float:
    """Makes a pod that is refused, then what it waits for; how long it took from when that was visible."""
    await world.make_pods({"name": waiter, "containers": {"main": units}})
    await world.watch.until_refused(waiter)
    await asyncio.sleep(SETTLING)
    await cause()
    visible = time.monotonic()
    await world.watch.until_bound(waiter, seconds=60)
    return max(world.watch.bound_at[waiter] - visible, 0.0)


def _check_and_tell(world: World, figures: Figures, what: str, waits: Sequence[float], more: str = "") -> None:
    patience = 0.0 if world.cluster.kind.number >= NO_BACK_OFF else BACK_OFF
    soon = sum(wait < SOON + patience for wait in waits)
    measured = f"{distribution(waits)}; {soon} of {len(waits)} within {SOON + patience:.0f} s{more}"
    timed.tell(figures, what, measured, in_time=soon >= 0.9 * len(waits) and max(waits) < LATEST + patience)


@timed.repeated_once
async def test_a_waiting_pod_is_bound_soon_after_a_release(world: World, figures: Figures) -> None:
    """Each that was bound is the next one's obstacle."""
    await world.make_nodes(1, gpus=GPUS)
    waits = []
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        in_the_way = await world.make_pods(*({"name": f"first-{i}", "containers": {"main": 5000}} for i in range(2)))
        await world.watch.until_bound(*in_the_way)
        for turn in range(RELEASES if world.cluster.kind.number >= NO_BACK_OFF else TURNS):
            oldest = in_the_way.pop(0)

            async def release(name: str = oldest) -> None:
                await world.delete_pod(name)
                await world.watch.until("gone", lambda: name in world.watch.gone_at, 10)

            waits.append(await _from_cause_to_binding(world, f"waits-{turn}", 5000, release))
            in_the_way.append(f"waits-{turn}")
            world.check_capacity()
        woken = (await world.metrics())("gpushare_wake_ups_total")
    _check_and_tell(world, figures, "from a release to the waiting pod's binding", waits, f"; {woken:.0f} wake-ups")


@timed.repeated_once
async def test_a_waiting_pod_is_bound_soon_after_a_hold_expires(world: World, figures: Figures) -> None:
    """A scheduler was told of a node, and never came back."""
    nodes = await world.make_nodes(HOLDS, gpus=[8000])
    ends, waits = [], []
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        for number, node in enumerate(nodes):
            (name,) = await world.make_pods(
                {"name": f"never-{number}", "containers": {"main": 5000}, "scheduler": "nobody"}
            )
            await world.watch.until("shown", lambda name=name: name in world.watch.pods, 10)  # type: ignore[misc]
            answer = await world.ask("filter", {"Pod": world.watch.pods[name], "NodeNames": [node]})
            assert answer["NodeNames"] == [node], answer
            ends.append(time.monotonic() + holding.ASSUME_SECONDS)
            await asyncio.sleep(SETTLING)
        waiting = await world.make_pods(*({"name": f"waits-{i}", "containers": {"main": 5000}} for i in range(HOLDS)))
        await world.watch.until_refused(*waiting)
        await world.watch.until_bound(*waiting, seconds=2 * holding.ASSUME_SECONDS)
        bound = sorted(world.watch.bound_at[name] for name in waiting)
        waits = [max(at - end, 0.0) for at, end in zip(bound, ends, strict=True)]
    assert bound[0] > ends[0] - 1, "nobody takes what is held"
    _check_and_tell(world, figures, "from the end of a hold to the waiting pod's binding", waits)


@timed.repeated_once
async def test_a_waiting_pod_is_bound_soon_after_a_gpu_becomes_healthy_as_its_node_says(
    world: World, figures: Figures
) -> None:
    (node,) = await world.make_nodes(1, gpus=GPUS)
    published = json.loads(objects.node(node, gpus=GPUS)["metadata"]["annotations"][names.NODE_GPUS])

    async def publish(healthy: bool) -> None:
        published["gpus"][1] |= {"ok": healthy, "why": "" if healthy else "Xid 79"}
        notes = {"metadata": {"annotations": {names.NODE_GPUS: json.dumps(published)}}}
        await world.patch(f"/api/v1/nodes/{node}", notes)

    waits = await _with_one_gpu_unhealthy(world, lambda: publish(False), lambda: publish(True))
    _check_and_tell(world, figures, "from a GPU's recovery (annotation) to the waiting pod's binding", waits)


@timed.repeated_once
async def test_a_waiting_pod_is_bound_soon_after_a_gpu_becomes_healthy_as_others_say(
    world: World, figures: Figures
) -> None:
    (node,) = await world.make_nodes(1, gpus=GPUS)
    path = f"/api/v1/namespaces/{names.UNHEALTHY_NAMESPACE}/configmaps"
    listed = {"metadata": {"name": names.UNHEALTHY_PREFIX + node}, "data": {names.UNHEALTHY_KEY: "1"}}

    async def break_it() -> None:
        await world.api.create(path, listed)

    async def heal_it() -> None:
        assert (await world.api.call("DELETE", f"{path}/{names.UNHEALTHY_PREFIX}{node}")).code == 200

    waits = await _with_one_gpu_unhealthy(world, break_it, heal_it)
    _check_and_tell(world, figures, "from a GPU's recovery (ConfigMap) to the waiting pod's binding", waits)


async def _with_one_gpu_unhealthy(world: World, break_it: Cause, heal_it: Cause) -> list[float]:
    waits = []
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await break_it()
        (holder,) = await world.make_pods({"name": "holds", "containers": {"main": 5000}})
        await world.watch.until_bound(holder)
        assert set(world.granted()) == {(pod_watch.node_of(world.watch.pods[holder]), 0)}
        for turn in range(OTHERS):
            waiter = f"waits-{turn}"
            waits.append(await _from_cause_to_binding(world, waiter, 6000, heal_it))
            world.check_capacity()
            await break_it()
            await world.delete_pod(waiter)
    await heal_it()
    return waits


@timed.repeated_once
async def test_a_waiting_pod_is_bound_soon_after_a_node_comes_back(world: World, figures: Figures) -> None:
    full, away = await world.make_nodes(2, gpus=GPUS)
    path = f"/api/v1/nodes/{away}"

    async def leave() -> None:
        """Everybody knows when the extender does: before, the next pod could still be sent there."""
        assert (await world.api.call("DELETE", path)).code == 200
        while (await world.ask(f"inspect/{away}"))["nodes"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def back() -> None:
        """Visible is a node that pods may go to: new ones are tainted for a moment."""
        await world.api.create("/api/v1/nodes", objects.node(away, gpus=GPUS))
        while (await world.api.get(path)).body["spec"].get("taints"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    waits = []
    async with world.cluster.extender(), world.cluster.scheduler(), world.kubelets():
        await leave()
        holders = await world.make_pods(*({"name": f"holds-{i}", "containers": {"main": 5000}} for i in range(2)))
        await world.watch.until_bound(*holders)
        assert {node for node, _ in world.granted()} == {full}
        for turn in range(OTHERS):
            waiter = f"waits-{turn}"
            waits.append(await _from_cause_to_binding(world, waiter, 6000, back))
            await world.delete_pod(waiter)
            await world.watch.until("gone", lambda name=waiter: name in world.watch.gone_at, 10)  # type: ignore[misc]
            await leave()
    _check_and_tell(world, figures, "from a node's coming back to the waiting pod's binding", waits)


async def test_what_a_thousand_nodes_say_against_a_pod_stays_short(world: World, figures: Figures) -> None:
    """No two nodes are alike, and each is to be refused for what it is; all together are one sentence."""
    kinds: list[Object] = [
        {},
        {"pin": "direct"},
        {"state": "draining"},
        {"unit": "GiB"},
        {"nvidia": 1},
        {"pin": "aliyun"},
    ]
    for words in kinds:
        count = BROAD // len(kinds) + (words == {}) * (BROAD % len(kinds))
        await world.make_various_nodes([{"gpus": [6000, 6000 + i, 6500 - i], **words} for i in range(count)])
    async with world.cluster.extender(), world.cluster.scheduler():
        (name,) = await world.make_pods({"name": "large", "containers": {"main": 9000}})
        # An old kube-scheduler begins before it knows all nodes, and thinks again when it knows more.
        everybody = f"0/{BROAD} nodes are available"
        shown = world.watch.pods
        await world.watch.until(everybody, lambda: pod_watch.refusal(shown.get(name, {})).startswith(everybody), 60)
        said = pod_watch.refusal(shown[name])
    figures.say(f"what {len(world.nodes)} nodes say against a pod", f"{len(said.encode())} bytes: {said}")
    assert len(said.encode()) < LARGEST_CONDITION
