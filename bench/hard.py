"""What one pod may cost everybody else: the worst of many pods made to be hard to place, and many that wait.

A thousand nodes of 8 GPUs, no two alike, so that no answer serves two nodes. The pods have up to 200 containers, init
containers and sidecars, several GPUs each, whole GPUs, and sizes that nearly fill what is free: those are hard.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bench.inside import decoded_pod
from bench.result import Result
from bench.yardstick import HERE
from gpushare.core.explain import verdict
from gpushare.core.facts import names, request
from gpushare.core.facts.kinds import MEMORY
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, PodFacts, Request, Role, Share
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.wakeups import WakeUps
from gpushare.extender.metrics import Metrics
from gpushare.extender.verbs import Verbs

NODES, GPUS = 1_000, 8
SMALLEST, LARGEST = 3_000, 16_000  # MiB of a GPU
PODS = 10_000
AGAIN = 20  # of the worst are measured again: what else the machine does only adds
WAITING, CHANGED = 5_000, 20
NAMES = [f"n{number}" for number in range(NODES)]

Object = dict[str, Any]


def run() -> Iterator[Result]:
    world = World()
    pods = [hard_pod(random.Random(seed), seed) for seed in range(PODS)]
    worst = sorted(range(PODS), key=lambda i: -world.choose_ms(pods[i]))[:AGAIN]
    note = f"of {PODS:,} hard pods, {NODES:,} nodes"
    measured = {i: min(world.cold_choose_ms(pods[i]) for _ in range(3)) for i in worst}
    yield Result(f"choose, the worst {note}", max(measured.values()), "ms", 25)
    hardest = pods[max(measured, key=lambda i: measured[i])]
    yield Result("the next tenant's choose later by, ms", _next_tenant(world, hardest), "ms", 50)
    yield Result("longest step of explain for that pod", _longest_step(world, hardest), "ms", 50)
    hardest_ones = [pods[i] for i in worst]
    yield Result(f"longest turn beside the calls, {AGAIN} such pods", _longest_study(hardest_ones), "ms", 50)
    for containers in (1, 6):
        name = f"wake-ups, {WAITING:,} sizes of {containers}, {CHANGED} nodes, longest turn"
        yield Result(name, _wake_ups(containers), "ms", 20)


class World:
    """The extender's verbs over a thousand nodes that differ, a few of their GPUs unhealthy, half of them pinned
    directly."""

    def __init__(self) -> None:
        dice = random.Random(1)
        self.ledger = Ledger()
        for number, name in enumerate(NAMES):
            gpus = [
                Gpu(i, f"G{number}-{i}", dice.randint(SMALLEST, LARGEST), dice.random() > 0.02) for i in range(GPUS)
            ]
            self.ledger.set_node(NodeFacts(name, "MiB", Pin.DIRECT if number % 2 else Pin.PLUGIN, tuple(gpus)))
        self._strangers = 0
        self.life = Life(self.ledger, policy="binpack")
        self.verbs = Verbs(
            self.life, unit=None, clock=lambda: 0.0,
            cannot_answer=lambda _: "", count_refusal=Metrics(self.ledger).refused,
        )  # fmt: skip

    def choose_ms(self, pod: Object) -> float:
        body = msgspec.json.encode({"Pod": pod, "NodeNames": NAMES})
        took = _cpu_ms(lambda: self.verbs.choose(body))
        self.ledger.release(pod["metadata"]["uid"])
        self.life.wakeups.gone(pod["metadata"]["uid"])
        return took

    def cold_choose_ms(self, pod: Object) -> float:
        """As if nobody had asked about such a pod before: answers are kept by namespace."""
        gc.collect()  # the extender has frozen its objects by then: a full collection is not a part of a call
        HERE.look()
        self._strangers += 1
        meta = {**pod["metadata"], "namespace": f"stranger-{self._strangers}"}
        return self.choose_ms({**pod, "metadata": meta})


def _next_tenant(world: World, hardest: Object) -> float:
    """How much later another tenant is answered if he asks right behind: what the hard call takes, and what it costs
    the next one."""
    small = simple_pod()
    alone = min(world.choose_ms(small) for _ in range(5))
    both = min(world.cold_choose_ms(hardest) + world.choose_ms(small) for _ in range(3))
    return both - alone


def _longest_step(world: World, hardest: Object) -> float:
    steps = verdict.explaining(world.ledger, request.facts(decoded_pod(hardest), None), looks=CALL_LOOKS)
    longest, going = 0.0, True
    while going:
        HERE.look()
        begun = time.process_time()
        going = next(steps, _END) is not _END
        longest = max(longest, time.process_time() - begun)
    return longest * 1000


_END = object()


def _longest_study(pods: list[Object]) -> float:
    """Nodes that the calls had no time for are looked at afterwards, a slice at a time. The best of three rounds, and
    without the collector, as in the extender: what else the machine does only adds."""
    gc.collect()
    gc.freeze()
    longest = min(max(_study_turns(World(), pods)) for _ in range(3))
    gc.unfreeze()
    return longest


def _study_turns(world: World, pods: list[Object]) -> Iterator[float]:
    for pod in pods:
        world.choose_ms(pod)
        facts = request.facts(decoded_pod(pod), None)
        if isinstance(facts.request, Request):
            world.ledger.refusals(facts.request, facts, NAMES, Budget(1))  # nothing is known of most nodes
    left = [True]
    while left.pop():
        HERE.look()
        yield _cpu_ms(lambda: left.append(world.ledger.study(Budget(CALL_LOOKS))))


def _wake_ups(containers: int) -> float:
    """A little comes free on some nodes, too little for anybody or nearly; all who wait want something else."""
    return min(_longest_turn(containers) for _ in range(3))


def _longest_turn(containers: int) -> float:
    HERE.look()
    ledger, waiting = _full_nodes(), WakeUps()
    for i in range(WAITING):
        waiting.refuse(_asks(f"w{i}", 8_000 + i, containers))
    for node in range(CHANGED):
        for gpu in range(GPUS):
            ledger.forget(f"full-{node}-{gpu}-0")
    return max(_cpu_ms(lambda: waiting.due(ledger, 1.0)) for _ in range(40))


def _full_nodes() -> Ledger:
    """On each GPU of 40,000 MiB four pods of 10,000."""
    ledger = Ledger()
    for node in range(CHANGED):
        ledger.set_node(
            NodeFacts(f"n{node}", "MiB", Pin.PLUGIN, tuple(Gpu(i, f"G{node}-{i}", 40_000) for i in range(GPUS)))
        )
        for gpu in range(GPUS):
            for part in range(4):
                annotations = ((names.ALIYUN_IDX, str(gpu)),)
                pod = _asks(f"full-{node}-{gpu}-{part}", 10_000, 1, node=f"n{node}", annotations=annotations)
                ledger.observe(pod, 0.0)
    ledger.take_grown()
    return ledger


def _asks(uid: str, units: int, containers: int, **more: Any) -> PodFacts:
    shares = tuple(Share(f"c{i}", i, Role.APP, MEMORY, units + i) for i in range(containers))
    return PodFacts(uid, "tenant", uid, Request(shares, Pin.PLUGIN), spec_units=units, **more)


def simple_pod() -> Object:
    return {
        "metadata": {"name": "simple", "namespace": "other", "uid": "simple"},
        "spec": {"containers": [_container(0, names.GPU_MEM, 1_000, direct=True, init=False)]},
    }


def hard_pod(dice: random.Random, number: int) -> Object:
    """Containers that together want nearly what a node has free: whether they fit is not to be seen at once."""
    direct, split = dice.random() < 0.6, dice.choice([1, 1, 1, 1, 2, 3, 4])
    count = dice.choice([2, 3, 4, 5, 6, 8, 12, 20, 33, 60, 100, 200])
    usual, spread = dice.choice([30_000, 50_000, 60_000, 70_000, 80_000]) // count, dice.choice([0.02, 0.1, 0.5, 0.9])

    def amount() -> int:
        return max(split, int(usual * (1 + dice.uniform(-spread, spread))) // split * split)

    apps = [_container(i, names.GPU_MEM, amount(), direct=direct, init=False) for i in range(count)]
    for i in range(min(3, count) if dice.random() < 0.2 else 0):
        apps[i] = _container(i, names.GPU_COUNT, dice.choice([1, 1, 2]), direct=direct, init=False)
    inits = []
    for i in range(dice.choice([1, 2, 5, 50]) if dice.random() < 0.4 else 0):
        wants = dice.choice([amount(), 15_000 // split * split, 16_000 // split * split, split])
        inits.append(_container(i, names.GPU_MEM, wants, direct=direct, init=True))
        if dice.random() < 0.3:
            inits[-1]["restartPolicy"] = "Always"
    annotations = {names.GPU_COUNT: str(split)} if split > 1 else {}
    meta = {"name": f"hard-{number}", "namespace": f"tenant-{number % 7}", "uid": f"hard-{number}"}
    return {"metadata": {**meta, "annotations": annotations}, "spec": {"containers": apps, "initContainers": inits}}


def _container(position: int, resource: str, amount: int, *, direct: bool, init: bool) -> Object:
    key = f"{names.VISIBLE_PREFIX}{'init-' if init else ''}{position}"
    field = {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}
    env = [{"name": names.VISIBLE_DEVICES, "valueFrom": field}] if direct else []
    return {"name": key.rpartition("/")[2], "resources": {"limits": {resource: str(amount)}}, "env": env}


def _cpu_ms(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000
