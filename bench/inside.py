"""An extender without its network: real verbs over a ledger filled by the real sinks."""

import time
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from bench import world
from bench.yardstick import HERE
from gpushare.core.facts import objects
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reach import Reach
from gpushare.extender import watches
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics
from gpushare.extender.verbs import Verbs
from gpushare.kube.events import Recorder


class _NoEvents:
    """Events are sent by another task and are not part of what is measured."""

    def record(self, **_: str) -> None: ...


class Inside:
    def __init__(self, nodes: int, *, pods: bool = True) -> None:
        self.size = nodes
        self.ledger = Ledger()
        metrics = self.metrics = Metrics(self.ledger)
        announcer = Announcer(cast(Recorder, _NoEvents()), self.ledger)
        clock = time.monotonic
        self.nodes = watches.Nodes(self.ledger, announcer, unit=None, clock=clock)
        life = self.life = Life(self.ledger, policy="binpack", reach=Reach(allowed=self.nodes.by_rules.allowed))
        self.pods = watches.Pods(life, announcer, metrics, unit=None, identity="bench000", clock=clock)
        self.verbs = Verbs(life, unit=None, clock=clock, cannot_answer=lambda _: "", count_refusal=metrics.refused)
        for number in range(nodes):
            self.nodes.upsert(decoded_node(world.node(number, size=0)))
        for item in world.bound_pods(nodes) if pods else ():
            self.pods.upsert(decoded_pod(item))


_pods = msgspec.json.Decoder(objects.Pod)
_nodes = msgspec.json.Decoder(objects.Node)


def decoded_pod(item: dict[str, Any]) -> objects.Pod:
    return _pods.decode(msgspec.json.encode(item))


def decoded_node(item: dict[str, Any]) -> objects.Node:
    return _nodes.decode(msgspec.json.encode(item))


def cpu_ms(work: Iterable[Callable[[], object]], repeats: int) -> float:
    """CPU milliseconds of one call: the best of several rounds, because what else the machine does only adds."""
    calls = list(work)
    rounds = []
    for _ in range(repeats):
        HERE.look()
        begun = time.process_time()
        for call in calls:
            call()
        rounds.append((time.process_time() - begun) / len(calls))
    return min(rounds) * 1000
