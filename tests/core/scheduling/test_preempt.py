"""Victims: nobody is spared, few are added, only of lower priority, or none at all."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.facts.model import Pin, PodFacts, Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.room import Room
from gpushare.core.scheduling import preempt
from tests.core import oracle, strategies
from tests.support import builders
from tests.support.builders import bound, facts, node_state, pod

NODE = facts(8, 8, slots=2, nvidia_whole=True)


def world(*pods: tuple[str, int, int, int]) -> Ledger:
    """Pods by name, units, GPU and priority on a node of two GPUs of 8."""
    made = builders.ledger(NODE)
    for name, amount, gpu, priority in pods:
        made.observe(bound(pod(amount, name=name, priority=priority), NODE, ((gpu,),)), 0.0)
    return made


def added(made: Ledger, asked: PodFacts, *chosen: str) -> list[str] | None:
    found = preempt.victims(node_state(made, "n"), asked, [f"uid-{name}" for name in chosen])
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


def test_what_is_only_assumed_cannot_be_evicted() -> None:
    made = builders.ledger(facts(8))
    made.assume(pod(8, name="h"), "n", "binpack", 0.0)
    assert preempt.victims(node_state(made, "n"), pod(6, priority=9), ()) is None


def test_room_that_is_promised_to_another_is_not_freed_for_this_one() -> None:
    """Or both would evict for the same GPU, and one of them for nothing."""
    made = world(("a", 8, 0, 0), ("b", 8, 1, 9))
    made.observe(pod(8, name="first", priority=5, nominated="n"), 0.0)
    assert added(made, pod(6, priority=5)) is None
    assert added(made, pod(6, priority=6)) == ["a"]
    assert added(made, pod(8, name="first", priority=5)) == ["a"]


def test_a_pod_that_nobody_knows_where_it_is_may_have_to_go() -> None:
    made = builders.ledger(facts(8))
    made.observe(pod(5, name="stray", on="n", direct=False), 0.0)
    assert added(made, pod(6, priority=9)) == ["stray"]


CROWD = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.integers(1, 5), st.integers(0, 1), st.integers(0, 3)),
    max_size=6,
    unique_by=lambda row: row[0],
)


@given(CROWD, strategies.api_requests(pin=Pin.DIRECT, most=2), st.sets(st.sampled_from("abcdefg")), st.integers(0, 3))
@settings(max_examples=200)
def test_victims_are_enough_not_one_too_many_and_never_of_higher_rank(
    crowd: list[tuple[str, int, int, int]], request: Request, chosen: set[str], priority: int
) -> None:
    made = world(*crowd)
    asked = PodFacts("u", "default", "p", request, priority=priority)
    found = added(made, asked, *sorted(chosen))
    lower = {name for name, _, _, rank in crowd if rank < priority} - chosen

    def makes_room(gone: set[str]) -> bool:
        used = [sum(n for name, n, on, _ in crowd if on == gpu and name not in gone) for gpu in (0, 1)]
        return oracle.fits(request, Pin.DIRECT, oracle.spots(Room.of(NODE, used)))

    if found is None:
        assert not makes_room(chosen | lower)
        return
    assert set(found) <= lower
    assert makes_room(chosen.union(found))
    for fewer in combinations(found, len(found) - 1) if found else ():
        assert not makes_room(chosen.union(fewer))
