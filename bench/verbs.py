"""filter, choose and prioritize, from request bytes to reply bytes, in process."""

import gc
from collections.abc import Callable, Iterator
from statistics import median

from bench import world
from bench.inside import Inside, cpu_ms, decoded_pod
from bench.result import Result
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling import ranking

SHAPES = 20
ORDERS = 30
FIRST_BUDGET, EVENT_BUDGET = 0.01, 0.2
FILTER_BUDGET = {500: 0.2, 1_000: 0.3, 5_000: 1.5}


def run() -> Iterator[Result]:
    for nodes, budget in FILTER_BUDGET.items():
        inside = Inside(nodes)
        gc.collect()
        gc.freeze()
        note = f"{nodes:,} nodes"
        yield Result(f"filter, {note}, half fit", _filter(inside, world.BIG), "ms", budget)
        yield Result(f"choose, {note}, half fit", _choose(inside), "ms")
        yield Result(f"choose, {note}, half fit: out of the kept order alone", _first(inside), "ms", FIRST_BUDGET)
        event, after = _event(inside)
        yield Result(f"a pod comes or goes, {note}, {ORDERS} kept orders", event, "ms", EVENT_BUDGET)
        yield Result(f"choose, {note}, after {ORDERS} such events: the order alone", after, "ms")
        yield Result(f"filter, {note}, all fit", _filter(inside, world.SMALL), "ms")
        yield Result(f"filter, {note}, none fit", _filter(inside, world.HUGE), "ms")
        yield Result(f"filter, {note}, half fit, 60 KB pod", _filter(inside, world.BIG, size=60_000), "ms")
        budgets = {1_000: 0.5}
        yield Result(f"prioritize, {note}", _prioritize(inside), "ms", budgets.get(nodes))
        cold = {5_000: 25.0}.get(nodes)
        yield Result(f"filter, {note}, cold shape of two containers", _cold(inside), "ms", cold, of=median)
        mixed = _mixed(inside)
        yield Result(f"filter, {note}, cold shape of memory, whole and MPS", mixed, "ms", cold, of=median)
        gc.unfreeze()


def _filter(inside: Inside, amount: int, size: int = 6_000) -> float:
    """Twenty shapes in turn, every fifth of two containers; between two calls a pod somewhere comes or goes."""
    bodies = []
    for shape in range(SHAPES):
        amounts = (amount + shape, 500 + shape) if shape % 5 == 0 else (amount + shape,)
        bodies.append(world.question(world.pod(f"ask-{shape}", *amounts, size=size), inside.size))
    changes = [_change(inside, number) for number in range(SHAPES)]
    calls = [_call(inside, body) for body in bodies]
    for call in calls:
        call()
    both = cpu_ms([step for pair in zip(changes, calls, strict=True) for step in pair], 15)
    return max(2 * both - cpu_ms(changes, 15), 0.0)


def _choose(inside: Inside) -> float:
    bodies = [world.question(world.pod(f"choose-{i}", world.BIG + i), inside.size) for i in range(SHAPES)]
    return cpu_ms([(lambda body=body: inside.verbs.choose(body)) for body in bodies], 15)  # type: ignore[misc]


def _first(inside: Inside) -> float:
    """The best of all nodes, of which one changed; without reading the body, and without assuming the pod."""
    everywhere = [world.node_name(number) for number in range(inside.size)]
    pods = [inside.life.facts(decoded_pod(world.pod(f"first-{i}", world.BIG + i)), None) for i in range(SHAPES)]
    return cpu_ms([_best(inside, pod, everywhere) for pod in pods], 15)


def _event(inside: Inside) -> tuple[float, float]:
    """Of pods of two containers, each sort with an order of its own: what a change costs, and one order after all."""
    everywhere = [world.node_name(number) for number in range(inside.size)]
    asked = [decoded_pod(world.pod(f"order-{i}", world.BIG + i, 500)) for i in range(ORDERS)]
    calls = [_best(inside, inside.life.facts(pod, None), everywhere) for pod in asked]
    for _ in range(20):  # a call does not look at all nodes at once
        for call in calls:
            call()
    changes = [_change(inside, number) for number in range(ORDERS)]
    event = cpu_ms(changes, 15)
    return event, cpu_ms(calls, 1)


def _best(inside: Inside, pod: PodFacts, everywhere: list[str]) -> Callable[[], object]:
    assert isinstance(pod.request, Request)
    request = pod.request
    return lambda: ranking.first(inside.ledger, request, pod, everywhere, "binpack", Budget(CALL_LOOKS))


def _prioritize(inside: Inside) -> float:
    bodies = [world.question(world.pod(f"rank-{i}", world.SMALL + i), inside.size) for i in range(SHAPES)]
    for body in bodies:
        inside.verbs.prioritize(body)
    return cpu_ms([(lambda body=body: inside.verbs.prioritize(body)) for body in bodies], 15)  # type: ignore[misc]


def _cold(inside: Inside) -> float:
    """Each call asks a shape nobody has asked before."""
    bodies = [world.question(world.pod(f"cold-{i}", world.BIG + 100 + i, 700 + i), inside.size) for i in range(9)]
    return median(cpu_ms([_call(inside, body)], 1) for body in bodies)


def _mixed(inside: Inside) -> float:
    """The same for a pod of three kinds. On every fourth node a GPU is empty, so that some fit."""
    for item in world.bound_pods(inside.size):
        if item["metadata"]["name"].split("-")[2] == "7" and int(item["metadata"]["name"].split("-")[1]) % 4 == 0:
            inside.pods.remove(decoded_pod(item))
    bodies = [world.question(world.mixed_pod(f"mixed-{i}", 4_000 + 8 * i), inside.size) for i in range(9)]
    return median(cpu_ms([_call(inside, body)], 1) for body in bodies)


def _call(inside: Inside, body: bytes) -> Callable[[], object]:
    return lambda: inside.verbs.filter(body)


def _change(inside: Inside, number: int) -> Callable[[], object]:
    node = world.node_name(number * 7 % inside.size)
    item = decoded_pod(world.pod(f"change-{number}", 10, node=node, gpu=3))

    def change() -> None:
        if inside.ledger.holding(item.metadata.uid) is not None:
            inside.pods.remove(item)
        else:
            inside.pods.upsert(item)

    return change
