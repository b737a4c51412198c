"""Whose turn it is in the stand-in scheduler, and what makes it try a refused pod again."""

from collections.abc import Set
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import intree
from gpushare.core.facts.intree import Node, Pod
from gpushare.devcluster.scheduler import hints
from gpushare.devcluster.scheduler.hints import NodeChanged, PodCame, PodEdited, PodLeft
from gpushare.devcluster.scheduler.queue import Queue, Queued

EXTENDER = frozenset({hints.EXTENDER})
CPU = frozenset({intree.INSUFFICIENT})
ERROR: Set[str] = frozenset()


def pod(name: str, priority: int = 0, *, cpu: str = "1", version: str = "1", **spec: Any) -> Pod:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "uid": name, "resourceVersion": version}
    return msgspec.convert({"metadata": meta, "spec": {"priority": priority, "containers": [container], **spec}}, Pod)


def node(*, cordoned: bool = False, taints: Any = None, cpu: str = "4", pods: str = "9", **labels: str) -> Node:
    spec = {"unschedulable": cordoned, "taints": taints}
    status = {"allocatable": {"cpu": cpu, "pods": pods}}
    return msgspec.convert({"metadata": {"name": "n", "labels": labels}, "spec": spec, "status": status}, Node)


def take(queue: Queue, now: float) -> Queued:
    taken = queue.take(now)
    assert taken is not None
    return taken


def names(queue: Queue, now: float) -> list[str]:
    """All that would be tried now, in order."""
    taken = []
    while (queued := queue.take(now)) is not None:
        taken.append(queued.pod.metadata.name)
    return taken


# Order


def test_the_higher_priority_comes_first_then_who_came_first() -> None:
    queue = Queue()
    for given in (pod("b"), pod("a"), pod("low", -5), pod("high", 10), pod("high-too", 10)):
        queue.put(given, 0)
    assert names(queue, 0) == ["high", "high-too", "b", "a", "low"]


def test_who_failed_goes_behind_its_equals() -> None:
    queue = Queue()
    queue.put(pod("a"), 0)
    queue.put(pod("b"), 0)
    queue.failed(take(queue, 0), ERROR, 0)
    assert names(queue, 5) == ["b", "a"]


def test_a_gated_pod_is_not_tried() -> None:
    queue = Queue()
    queue.put(pod("a", schedulingGates=[{"name": "quota"}]), 0)
    queue.put(pod("b"), 0)
    queue.happened(PodLeft(), 0)
    assert names(queue, 1000) == ["b"]
    queue.put(pod("a"), 1000)
    assert names(queue, 1000) == ["a"]


def test_a_pod_that_is_being_bound_is_not_tried_until_that_fails() -> None:
    queue = Queue()
    queue.put(pod("a"), 0)
    taken = take(queue, 0)
    assert queue.binding(taken)
    queue.put(pod("a", version="2"), 0)
    queue.happened(PodLeft(), 0)
    assert names(queue, 1000) == []
    assert queue.failed(taken, ERROR, 1000)
    assert names(queue, 1001) == ["a"]


def test_a_pod_that_left_meanwhile_does_not_come_back() -> None:
    queue = Queue()
    queue.put(pod("a"), 0)
    taken = take(queue, 0)
    queue.drop("a")
    queue.put(pod("a"), 0)  # the same name and uid, as after a lost and found watch
    assert not queue.failed(taken, ERROR, 0)
    assert not queue.binding(taken)
    assert names(queue, 0) == ["a"]


# Back-off


def test_the_back_off_doubles_up_to_the_longest() -> None:
    queue, now, delays = Queue(first=1, longest=10), 0.0, []
    queue.put(pod("a"), 0)
    for _ in range(6):
        queue.failed(take(queue, now), ERROR, now)
        assert queue.take(queue.due() - 0.001) is None
        delays.append(queue.due() - now)
        now = queue.due()
    assert delays == [1, 2, 4, 8, 10, 10]


def test_many_failures_later_the_back_off_is_still_the_longest() -> None:
    queue, now = Queue(first=1.0, longest=10.0), 0.0
    queue.put(pod("a"), 0)
    for _ in range(2000):
        queue.failed(take(queue, now), ERROR, now)
        now = queue.due()
    assert queue.due() == now


def test_a_refusal_ends_a_row_of_errors() -> None:
    queue = Queue(first=1, longest=10)
    queue.put(pod("a"), 0)
    for now in (0, 10, 20):
        queue.failed(take(queue, now), ERROR, now)
    queue.failed(take(queue, 30), EXTENDER, 30)
    queue.happened(PodCame(), 30)
    assert queue.due() == 31


def test_who_backs_off_from_a_refusal_is_tried_at_once_while_nobody_else_is() -> None:
    queue = Queue()
    queue.put(pod("a"), 0)
    queue.failed(take(queue, 0), EXTENDER, 0)
    queue.put(pod("b"), 0)
    queue.happened(PodCame(), 0)
    assert names(queue, 0) == ["b", "a"]


def test_who_met_an_error_is_not() -> None:
    queue = Queue()
    queue.put(pod("a"), 0)
    queue.failed(take(queue, 0), ERROR, 0)
    queue.happened(PodCame(), 0)
    assert names(queue, 0.9) == []
    assert names(queue, 1.0) == ["a"]


# Waiting


def test_a_refused_pod_waits_until_something_helps() -> None:
    queue = Queue()
    queue.put(pod("a"), 0)
    queue.failed(take(queue, 0), CPU, 0)
    assert names(queue, 100) == []
    queue.happened(PodCame(), 100)
    assert names(queue, 100) == []
    queue.happened(PodLeft(), 100)
    assert names(queue, 100) == ["a"]


def test_what_changes_while_a_pod_is_tried_counts_when_it_is_refused() -> None:
    queue = Queue()
    queue.put(pod("a"), 0)
    taken = take(queue, 0)
    queue.happened(PodLeft(), 0)
    queue.failed(taken, CPU, 0)
    assert names(queue, 1) == ["a"]


def test_what_changed_before_it_was_tried_does_not() -> None:
    queue = Queue()
    queue.put(pod("a"), 0)
    queue.happened(PodLeft(), 0)
    queue.failed(take(queue, 0), CPU, 0)
    assert names(queue, 1) == []


def test_an_edit_of_the_pod_itself_counts_too() -> None:
    queue = Queue()
    for name in ("a", "b"):
        queue.put(pod(name), 0)
        queue.failed(take(queue, 0), EXTENDER, 0)
    queue.put(pod("a", version="2"), 1)
    assert names(queue, 1) == ["a"], "and of no other"
    queue.put(pod("c"), 1)
    taken = take(queue, 1)
    queue.put(pod("c", version="2"), 1)
    queue.failed(taken, EXTENDER, 1)
    assert names(queue, 2) == ["c"]


def test_after_five_minutes_a_pod_is_tried_anyway() -> None:
    queue = Queue(at_most=300)
    queue.put(pod("a"), 0)
    queue.failed(take(queue, 10), CPU, 10)
    assert queue.due() == 310
    assert names(queue, 309) == []
    assert names(queue, 310) == ["a"]


def test_an_empty_queue_waits_for_nothing() -> None:
    queue = Queue()
    assert queue.take(0) is None
    assert queue.due() == float("inf")


# What helps

TRAIN = [{"key": "dedicated", "value": "train", "effect": "NoSchedule"}]
TOLERATES = [{"key": "dedicated", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("code", "change", "helps"),
    [
        (intree.INSUFFICIENT, PodLeft(), True),
        (intree.INSUFFICIENT, PodCame(), False),
        (intree.INSUFFICIENT, NodeChanged(None, node()), True),
        (intree.INSUFFICIENT, NodeChanged(None, node(cpu="500m")), False),
        (intree.INSUFFICIENT, NodeChanged(node(cpu="4"), node(cpu="5")), True),
        (intree.INSUFFICIENT, NodeChanged(node(pods="9"), node(pods="10")), True),
        (intree.INSUFFICIENT, NodeChanged(node(cpu="5"), node(cpu="4")), False),
        (intree.INSUFFICIENT, NodeChanged(node(), node(disk="ssd")), False),
        (intree.INSUFFICIENT, NodeChanged(node(), None), False),
        (intree.CORDONED, NodeChanged(node(cordoned=True), node()), True),
        (intree.CORDONED, NodeChanged(node(), node(disk="ssd")), False),
        (intree.CORDONED, NodeChanged(None, node(cordoned=True)), False),
        (intree.CORDONED, PodLeft(), False),
        (intree.TAINT, NodeChanged(node(taints=TRAIN), node()), True),
        (intree.TAINT, NodeChanged(node(cordoned=True), node()), False),
        (intree.TAINT, PodEdited(pod("a"), pod("a", tolerations=TOLERATES)), True),
        (intree.TAINT, PodEdited(pod("a"), pod("a", version="2")), False),
        (intree.NODE_SELECTOR, NodeChanged(node(), node(disk="ssd")), True),
        (intree.NODE_SELECTOR, NodeChanged(node(), node(disk="tape")), False),
        (intree.NODE_SELECTOR, PodEdited(pod("a"), pod("a", tolerations=TOLERATES)), False),
        (hints.EXTENDER, PodLeft(), True),
        (hints.EXTENDER, PodCame(), True),
        (hints.EXTENDER, NodeChanged(node(), None), True),
        (hints.EXTENDER, PodEdited(pod("a"), pod("a", version="2")), True),
    ],
)
def test_a_change_helps_who_was_refused_for_what_it_changes(code: str, change: hints.Change, helps: bool) -> None:
    assert hints.could_help(change, pod("a", nodeSelector={"disk": "ssd"}), {code}) is helps


def test_one_of_several_reasons_gone_is_enough() -> None:
    change = NodeChanged(node(taints=TRAIN), node())
    assert hints.could_help(change, pod("a"), {intree.TAINT, intree.CORDONED})


def test_a_heartbeat_of_a_node_matters_to_nobody() -> None:
    assert not hints.matters(node(disk="ssd"), node(disk="ssd"))
    for other in (node(cpu="5"), node(taints=TRAIN), node(disk="ssd")):
        assert hints.matters(node(), other)
    assert hints.matters(node(cordoned=True), node())
    assert not hints.matters(node(), node(cordoned=True)), "that only keeps pods away"
