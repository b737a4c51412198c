"""choose by `vrc` among nodes that all differ in free GPUs, CPU and memory: as always, right after policies have
learned, and for a sort of pod that never came before. What learning costs, and events of pods and nodes beside it."""

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from bench import world
from bench.inside import Inside, cpu_ms, decoded_node, decoded_pod
from bench.result import Result
from gpushare.core.facts.policies import POLICIES
from gpushare.core.scheduling import ranking
from gpushare.core.scheduling.reach import Reach

SIZES = (1_000, 5_000)
PODS_A_NODE, RUNNING, SORTS, CALLS = 8, 500, 20, 40  # on each node, of so many sorts; sorts and pods that come
BUDGET = {1_000: 1.5, 5_000: 6.0}
EVENT_BUDGET = 0.2
GIB = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 60)


def run() -> Iterator[Result]:
    for nodes in SIZES:
        random, note = Random(nodes), f"vrc, {nodes:,} nodes"
        inside = _cluster(nodes, random)
        sorts = [_sort(random) for _ in range(SORTS)]
        _learn(inside)
        gc.collect()
        gc.freeze()
        asked = _questions(inside, sorts, random)
        for body in itertools.islice(asked, 10 * SORTS):
            inside.verbs.choose(body)
        yield Result(f"choose, {note}", _choose(inside, asked), "ms", BUDGET[nodes])
        longest, total = _learn(inside)
        yield Result(f"choose right after a refresh, {note}", _choose(inside, asked, 1), "ms", BUDGET[nodes])
        cold = _questions(inside, [_sort(random) for _ in range(CALLS)], random)
        yield Result(f"choose, a sort that never came, {note}", _choose(inside, cold, 1), "ms", BUDGET[nodes])
        yield Result(f"a refresh, longest step beside schedulers, {note}", longest, "ms")
        yield Result(f"a refresh, all steps, {note}", total, "ms")
        yield Result(f"an event of a pod without GPUs, {note}", _pod_events(inside), "ms", EVENT_BUDGET)
        yield Result(f"an event of a node, {note}", _node_events(inside), "ms", EVENT_BUDGET)
        gc.unfreeze()


def _cluster(nodes: int, random: Random) -> Inside:
    inside = Inside(nodes, pods=False)
    inside.life.policy = "vrc"
    rules = inside.nodes.by_rules
    inside.life.reach = Reach(rules.allowed, rules.open_to, rules.reserved)
    sorts = [_sort(random) for _ in range(RUNNING)]
    for number in range(nodes):
        for copy in range(PODS_A_NODE):
            sort = random.choice(sorts)
            made = world.pod(f"run-{number}-{copy}", sort[0], node=world.node_name(number), gpu=copy, size=0)
            inside.pods.upsert(decoded_pod(_asking(made, *sort[1:])))
    return inside


def _sort(random: Random) -> tuple[int, int, int]:
    """GPU memory in MiB, CPU in thousandths, memory in MiB."""
    return random.choice(GIB) * 1024, random.randrange(500, 12_000, 100), random.randrange(1024, 65_536, 512)


def _asking(made: dict[str, Any], cpu: int, memory: int) -> dict[str, Any]:
    made["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    return made


def _questions(inside: Inside, sorts: list[tuple[int, int, int]], random: Random) -> Iterator[bytes]:
    for number in itertools.count():
        memory, *others = sorts[number % len(sorts)]
        made = world.pod(f"new-{random.random()}", memory)
        yield world.question(_asking(made, *others), inside.size)


def _choose(inside: Inside, asked: Iterator[bytes], repeats: int = 5) -> float:
    """Each pod is a new one, and is assumed on its node: so nodes change between two calls."""
    rounds = [list(itertools.islice(asked, CALLS)) for _ in range(repeats)]
    return min([cpu_ms([_call(inside, body) for body in bodies], 1) for bodies in rounds])


def _call(inside: Inside, body: bytes) -> Callable[[], object]:
    return lambda: inside.verbs.choose(body)


def _learn(inside: Inside) -> tuple[float, float]:
    """As the extender does it. The longest step on its loop and all of it, without what a thread does."""
    ledger, mix = inside.ledger, inside.pods.learning.mix
    mixing, make = mix.mixing(ledger, inside.life.reach), POLICIES["vrc"].packing
    first, mixture = _steps(mixing)
    assert make is not None
    scorers = {"vrc": make(mixture)}
    second, orders = _steps(ranking.relearning(ledger, scorers))
    ledger.learn(mixture, scorers, orders)
    return max(*first, *second), sum(first) + sum(second)


def _steps(steps: Any) -> tuple[list[float], Any]:
    times: list[float] = []
    while True:
        begun = time.process_time()
        try:
            next(steps)
        except StopIteration as end:
            return [*times, (time.process_time() - begun) * 1000], end.value
        times.append((time.process_time() - begun) * 1000)


def _pod_events(inside: Inside) -> float:
    pods = [world.pod(f"plain-{i}", 1, node=world.node_name(i), size=0) for i in range(2 * CALLS)]
    for i, made in enumerate(pods):
        made["metadata"]["uid"] = f"plain-{i // 2}"
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{100 + i}m", "memory": "64Mi"}}
    items = [decoded_pod(made) for made in pods]
    return cpu_ms([_upsert(inside.pods, item) for item in items], 10)


def _node_events(inside: Inside) -> float:
    nodes = [world.node(i // 2, size=0) for i in range(2 * CALLS)]
    for i, made in enumerate(nodes):
        made["status"]["allocatable"] = made["status"]["allocatable"] | {"cpu": str(100 + i)}
    items = [decoded_node(made) for made in nodes]
    return cpu_ms([_upsert(inside.nodes, item) for item in items], 10)


def _upsert(sink: Any, item: object) -> Callable[[], object]:
    return lambda: sink.upsert(item)
