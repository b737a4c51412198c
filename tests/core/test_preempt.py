"""Victims: nobody is spared, few are added, only of lower priority, or none at all."""

from gpushare.core import preempt
from gpushare.core.ledger import Ledger
from gpushare.core.model import PodFacts
from tests.core import builders
from tests.core.builders import bound, facts, pod

NODE = facts(8, 8)


def world(*pods: tuple[str, int, int, int]) -> Ledger:
    """Pods by name, units, GPU and priority on a node of two GPUs of 8."""
    made = builders.ledger(NODE)
    for name, amount, gpu, priority in pods:
        made.observe(bound(pod(amount, name=name, priority=priority), NODE, ((gpu,),)), 0.0)
    return made


def added(made: Ledger, asked: PodFacts, *chosen: str) -> list[str] | None:
    found = preempt.victims(made.nodes["n"], asked, [f"uid-{name}" for name in chosen])
    return None if found is None else sorted(uid.removeprefix("uid-") for uid in found)


def test_nothing_is_added_where_the_chosen_victims_free_a_gpu() -> None:
    assert added(world(("a", 8, 0, 0), ("b", 8, 1, 0)), pod(6, priority=9), "a") == []


def test_totals_freed_in_pieces_are_completed_on_one_gpu() -> None:
    made = world(("a", 4, 0, 0), ("b", 4, 0, 0), ("c", 4, 1, 0), ("d", 4, 1, 0))
    more = added(made, pod(6, priority=9), "a", "c")
    assert more in (["b"], ["d"])


def test_only_lower_priorities_may_go() -> None:
    made = world(("a", 8, 0, 9), ("b", 8, 1, 9))
    assert added(made, pod(6, priority=9)) is None
    assert added(made, pod(6, priority=10)) in (["a"], ["b"])


def test_the_least_important_goes_and_nobody_without_need() -> None:
    made = world(("low", 8, 0, 1), ("mid", 8, 1, 5))
    assert added(made, pod(6, priority=9)) == ["low"]


def test_who_would_not_make_room_is_let_off() -> None:
    made = world(("tiny", 1, 0, 0), ("big", 7, 1, 1), ("stays", 7, 0, 99))
    assert added(made, pod(8, priority=9)) == ["big"]


def test_a_node_that_could_never_serve_the_pod_evicts_nobody() -> None:
    made = world(("a", 8, 0, 0), ("b", 8, 1, 0))
    assert added(made, pod(9, priority=9)) is None
    assert added(made, pod(6, priority=9, direct=False)) is None


def test_a_victim_we_do_not_know_is_somebody_elses_reason() -> None:
    assert added(world(("a", 8, 0, 0), ("b", 2, 1, 0)), pod(6, priority=9), "unknown-cpu-hog") == []


def test_what_is_only_held_cannot_be_evicted() -> None:
    made = builders.ledger(facts(8))
    made.hold(pod(8, name="h"), "n", "binpack", 0.0)
    assert preempt.victims(made.nodes["n"], pod(6, priority=9), ()) is None
