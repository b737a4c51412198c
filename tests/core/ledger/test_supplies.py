"""CPU and memory of nodes, whatever happens to the pods that use them."""

from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.packing.model import UNKNOWN
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.supplies import Supplies
from tests.support import builders

NODES, UIDS = ["a", "b"], ["1", "2", "3"]
USES = st.tuples(st.sampled_from(UIDS), st.sampled_from(NODES), st.integers(0, 5), st.integers(0, 5))
STEPS = st.lists(st.one_of(USES, st.sampled_from(UIDS)), max_size=20)


@given(STEPS)
def test_what_is_left_is_what_the_pods_that_are_there_leave(steps: list[tuple[str, str, int, int] | str]) -> None:
    supplies, there = Supplies(), dict[str, tuple[str, int, int]]()
    for node in NODES:
        supplies.offer(node, 100, 100)
    for step in steps:
        if isinstance(step, str):
            supplies.end(step)
            there.pop(step, None)
        else:
            supplies.use(*step)
            there[step[0]] = step[1:]
    for node in NODES:
        cpu = sum(use[1] for use in there.values() if use[0] == node)
        memory = sum(use[2] for use in there.values() if use[0] == node)
        assert supplies.left(node) == (100 - cpu, 100 - memory)


@given(STEPS)
def test_nothing_is_left_behind_once_all_pods_and_nodes_are_gone(
    steps: list[tuple[str, str, int, int] | str],
) -> None:
    supplies = Supplies()
    supplies.offer("a", 100, 100)
    for step in steps:
        supplies.end(step) if isinstance(step, str) else supplies.use(*step)
    for uid in UIDS[:2]:
        supplies.end(uid)
    supplies.withdraw("a")
    supplies.end(UIDS[2])
    assert not supplies.pods()
    assert supplies._used == {}


def test_a_node_that_nobody_told_of_has_enough() -> None:
    supplies = Supplies()
    supplies.use("1", "a", 5, 5)
    assert supplies.left("a") == (UNKNOWN, UNKNOWN)


def test_a_node_that_has_given_out_more_than_it_has_has_nothing_left() -> None:
    supplies = Supplies()
    supplies.offer("a", 10, 10)
    supplies.use("1", "a", 50, 5)
    assert supplies.left("a") == (0, 5)


ENDS: dict[str, Callable[[Ledger, PodFacts], object]] = {
    "released": lambda ledger, pod: ledger.release(pod.uid),
    "too old": lambda ledger, pod: ledger.expire(1e6),
    "deleted": lambda ledger, pod: ledger.forget(pod.uid),
    "ended": lambda ledger, pod: ledger.observe(msgspec.structs.replace(pod, finished=True), 1.0),
    "being deleted": lambda ledger, pod: ledger.observe(msgspec.structs.replace(pod, terminating=True), 1.0),
    "on a GPU that is gone": lambda ledger, pod: ledger.set_node(builders.facts(3, uuids=["GPU-other"])),
}


def test_an_assumed_pod_takes_cpu_and_memory_until_it_ends() -> None:
    for how, end in ENDS.items():
        ledger = builders.ledger(builders.facts(8, 8))
        ledger.offer("n", 1000, 1000)
        pod = msgspec.structs.replace(builders.pod(4), cpu=300, memory=200)
        ledger.assume(pod, "n", "binpack", 0.0)
        assert ledger.supplies.left("n") == (700, 800), how
        end(ledger, pod)
        assert ledger.supplies.left("n") == (1000, 1000), how


def test_a_bound_pod_takes_cpu_and_memory_also_while_its_node_shows_no_gpu() -> None:
    node = builders.facts(8)
    ledger = builders.ledger(node)
    ledger.offer("n", 1000, 1000)
    pod = msgspec.structs.replace(builders.pod(4), cpu=300, memory=200)
    ledger.observe(builders.bound(pod, node, ((0,),)), 0.0)
    ledger.remove_node("n")
    ledger.set_node(node)
    assert ledger.supplies.left("n") == (700, 800)


def test_a_list_ends_what_pods_used_that_are_not_in_it() -> None:
    ledger = builders.ledger(builders.facts(8))
    ledger.offer("n", 1000, 1000)
    ledger.use("plain", "n", 100, 100)
    ledger.use("other", "n", 50, 50)
    ledger.relisted({"other"})
    assert ledger.supplies.left("n") == (950, 950)


def test_what_a_pod_without_gpus_takes_is_seen_by_policies_at_once() -> None:
    ledger = builders.ledger(builders.facts(8))
    ledger.offer("n", 1000, 1000)
    asks = builders.pod(4)
    before = ledger.view("n", asks)
    ledger.use("plain", "n", 100, 200)
    after = ledger.view("n", asks)
    assert before is not None
    assert after is not None
    assert (before.cpu, before.memory, after.cpu, after.memory) == (1000, 1000, 900, 800)
