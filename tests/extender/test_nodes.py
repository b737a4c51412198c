"""Which nodes are open to a pod, by what both say now; a heartbeat changes nothing."""

from typing import Any, cast

import msgspec

from gpushare.core.facts import request
from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.objects import Metadata, Node, Pod
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling import reach
from gpushare.core.scheduling.life import Life
from gpushare.extender import watches
from gpushare.extender.events import Announcer
from gpushare.extender.metrics import Metrics
from gpushare.kube.events import Recorder
from tests.support import objects

TRAIN = "dedicated=train:NoSchedule"


class World:
    def __init__(self, **given: Any) -> None:
        ledger = Ledger()
        announcer = Announcer(cast(Recorder, None), ledger)
        self.nodes = watches.Nodes(ledger, announcer, unit="MiB", clock=lambda: 0.0)
        for name, words in given.items():
            self.node(name, **words)

    def node(self, name: str, **words: Any) -> None:
        self.nodes.upsert(msgspec.convert(objects.node(name, {"gpus": [8000]} | words), Node))

    def open_to(self, pod: PodFacts) -> set[str]:
        """By both ways of asking, which must agree."""
        allowed = self.nodes.by_rules.allowed(pod)
        found = {name for name in ("a", "b", "c", "unknown") if self.nodes.by_rules.open_to(pod, name)}
        assert allowed is None or set(allowed) == found
        return found


def read(name: str = "p", **words: Any) -> Pod:
    return msgspec.convert(objects.pod({"name": name, "containers": {"main": 1000}} | words), Pod)


def pod(**words: Any) -> PodFacts:
    return request.facts(read(**words), None)


def test_a_pod_that_says_nothing_may_use_every_node_that_keeps_nobody_off() -> None:
    world = World(a={}, b={"labels": {"disk": "ssd"}})
    assert world.nodes.by_rules.allowed(pod()) is None
    assert world.open_to(pod()) == {"a", "b"}
    world.node("b", taints=[TRAIN])
    assert world.nodes.by_rules.allowed(pod()) == {"a"}
    assert world.open_to(pod(tolerates=["dedicated"])) == {"a", "b"}


def test_whatever_changes_on_a_node_counts_at_once() -> None:
    world = World(a={}, b={}, c={})
    asked = pod(selector={"disk": "ssd"})
    assert world.open_to(asked) == set()
    world.node("a", labels={"disk": "ssd"})
    assert world.open_to(asked) == {"a"}
    world.node("b", labels={"disk": "ssd"})
    world.node("a", labels={"disk": "ssd"}, cordoned=True)
    assert world.open_to(asked) == {"b"}
    world.node("b", labels={"disk": "ssd"}, taints=[TRAIN])
    assert world.open_to(asked) == set()
    world.node("b", labels={"disk": "ssd"})
    assert world.open_to(asked) == {"b"}
    world.nodes.remove(Node(Metadata(name="b")))
    assert world.open_to(asked) == set()
    world.nodes.relisted({"c"})
    assert world.nodes.by_rules.allowed(pod()) is None
    assert world.open_to(pod()) == {"c"}


def test_an_affinity_may_name_nodes() -> None:
    world = World(a={}, b={}, c={"labels": {"zone": "x"}})
    assert world.open_to(pod(affinity=["metadata.name In b", "zone Exists"])) == {"b", "c"}


def test_a_heartbeat_makes_nobody_look_again() -> None:
    world = World(a={"labels": {"disk": "ssd"}, "taints": [TRAIN]}, b={"labels": {"disk": "ssd"}})
    asked = pod(selector={"disk": "ssd"})
    before = world.nodes.by_rules.allowed(asked)
    world.node("a", labels={"disk": "ssd"}, taints=[TRAIN])
    assert world.nodes.by_rules.allowed(asked) is before


def test_the_nodes_of_many_different_rules_are_not_remembered_without_end() -> None:
    world = World(a={"labels": {"number": "7"}}, b={})
    for number in range(200):
        assert world.open_to(pod(selector={"number": str(number)})) == ({"a"} if number == 7 else set())
    assert len(world.nodes.by_rules._allowed) <= reach.MOST_ALLOWED


def test_equal_rules_of_many_waiting_pods_are_kept_once() -> None:
    ledger = Ledger()
    life = Life(ledger, policy="binpack")
    announcer = Announcer(cast(Recorder, None), ledger)
    pods = watches.Pods(life, announcer, Metrics(ledger), unit=None, identity="x", clock=lambda: 0.0)
    for number in range(3):
        pods.upsert(read(f"p{number}", selector={"disk": "ssd"}, tolerates=[TRAIN]))
    rules = [each.rules for each in life.pending.shown.values()]
    assert len(rules) == 3
    assert rules[0] is not None
    assert all(each is rules[0] for each in rules)
