"""The best node: exactly one at the top, and by the named policy."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.facts.model import Pin, PodFacts, Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import gpu_choice
from gpushare.core.scheduling import ranking
from gpushare.core.scheduling.life import Life
from tests.core import strategies
from tests.support.builders import bound, facts, node_state, pod


def best(
    made: Ledger, asked: PodFacts, policy: str = "binpack", *, among: list[str] | None = None
) -> list[tuple[str, int]]:
    assert isinstance(asked.request, Request)
    return ranking.best(made, asked.request, asked, list(made.node_names()) if among is None else among, policy)


def world(**free: tuple[int, ...]) -> Ledger:
    """Nodes of GPUs of 10, with that much free on each."""
    made = Ledger()
    for name, left in free.items():
        node = facts(*([10] * len(left)), name=name)
        made.set_node(node)
        for gpu, amount in enumerate(left):
            if amount < 10:
                made.observe(bound(pod(10 - amount), node, ((gpu,),)), 0.0)
    return made


def test_binpack_takes_the_tightest_gpu_then_the_fuller_node() -> None:
    made = world(a=(10, 10), b=(4, 10), c=(4, 5))
    assert best(made, pod(4)) == [("c", 10), ("b", 9), ("a", 8)]


def test_spread_takes_the_emptiest() -> None:
    made = world(a=(10, 10), b=(4, 10), c=(4, 5))
    assert [node for node, _ in best(made, pod(4), "spread")] == ["a", "b", "c"]


def test_only_one_node_is_on_top_and_equal_nodes_are_equal_below_it() -> None:
    made = world(a=(10,), b=(10,), c=(10,), d=(10, 10))
    assert [points for _, points in best(made, pod(4))] == [10, 9, 9, 8]


def test_nodes_that_do_not_fit_are_not_named() -> None:
    made = world(a=(3,), b=(10,))
    assert best(made, pod(4)) == [("b", 10)]
    assert best(made, pod(4, direct=False)) == []
    assert best(made, pod(4), among=["a", "nowhere"]) == []
    assert best(made, pod(4), among=[]) == []


def test_ten_nodes_are_enough() -> None:
    assert len(best(world(**{f"n{i}": (10,) for i in range(30)}), pod(4))) == 10


@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_other_shapes_are_ranked_by_what_their_gpus_keep(policy: str) -> None:
    made = world(a=(10, 10), b=(6, 5), c=(6, 10))
    order = [node for node, _ in best(made, pod(6, 5), policy)]
    assert order == (["b", "c", "a"] if policy == "binpack" else ["a", "c", "b"])


def test_a_promised_node_counts_only_for_those_it_is_promised_to() -> None:
    made = world(a=(6,), b=(10,))
    made.observe(pod(6, name="waits", nominated="a", priority=5), 0.0)
    assert [node for node, _ in best(made, pod(6))] == ["b"]
    assert [node for node, _ in best(made, pod(6, priority=9))] == ["a", "b"]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Ledger, PodFacts]:
    free = st.lists(st.sampled_from([2, 4, 7, 10]), min_size=1, max_size=3).map(tuple)
    made = world(**draw(st.dictionaries(st.sampled_from("abcdefghijklm"), free, min_size=1)))
    return made, PodFacts("u", "default", "p", draw(strategies.api_requests(pin=Pin.DIRECT)))


def leftover(made: Ledger, request: Request, node: str, policy: str) -> tuple[int, int]:
    """What the GPUs that would be chosen keep free, and the node in all: what ranks it."""
    room = node_state(made, node).room
    assert room is not None
    places = gpu_choice.plan(request, room, policy)
    assert places is not None
    taken = gpu_choice.charges(request.shares, room.facts, places)
    return sum(room.free[charge.gpu] - charge.units for charge in taken), room.sum_free


@given(clusters(), strategies.POLICIES)
@settings(max_examples=150)
def test_scores_follow_what_the_plan_leaves(case: tuple[Ledger, PodFacts], policy: str) -> None:
    made, asked = case
    assert isinstance(asked.request, Request)
    fits = made.fitting(asked.request, asked, list(made.node_names()))
    left = {node: leftover(made, asked.request, node, policy) for node in fits}
    order = sorted(left.values(), reverse=policy == "spread")[: ranking.BEST]
    scored = best(made, asked, policy)
    assert [left[node] for node, _ in scored] == order
    assert [points for _, points in scored][:2] == [10, 9][: len(scored)]
    for (node, points), (following, fewer) in pairwise(scored[1:]):
        assert (points == fewer) is (left[node] == left[following])
        assert points - fewer in (0, 1)


@given(clusters(), strategies.POLICIES)
@settings(max_examples=50)
def test_the_best_node_can_be_held(case: tuple[Ledger, PodFacts], policy: str) -> None:
    made, asked = case
    for node, _ in best(made, asked, policy):
        assert isinstance(made.assume(asked, node, policy, 0.0), tuple)


@pytest.mark.parametrize("policy", ["binpack", "spread"])
@pytest.mark.parametrize(("memory", "more", "fit"), [
    ((5,), {}, ["a", "b", "c"]), ((6,), {}, ["b", "c"]), ((8,), {}, ["c"]), ((6,), {"split": 2}, ["b", "c"]),
    ((3, 3), {}, ["a", "b", "c"]), ((2, 6), {}, ["b", "c"]), ((), {"whole": 1}, ["a", "b", "c"]),
])  # fmt: skip
def test_no_container_goes_where_the_limit_is_lower(
    policy: str, memory: tuple[int, ...], more: dict[str, Any], fit: list[str]
) -> None:
    made, asked = Ledger(), pod(*memory, direct=False, **more)
    assert isinstance(asked.request, Request)
    for name, limit in (("a", 5), ("b", 7), ("c", 0)):
        made.set_node(facts(10, 10, name=name, pin="plugin", limit=limit))
    assert sorted(node for node, _ in best(made, asked, policy, among=["a", "b", "c"])) == fit
    assert sorted(made.fitting(asked.request, asked, ["a", "b", "c"])) == fit
    refusals = made.refusals(asked.request, asked, ["a", "b", "c"])
    assert {refusal.code for refusal in refusals.values()} <= {"OverLimit"}
    assert sorted({"a", "b", "c"} - refusals.keys()) == fit
    made.set_node(facts(10, 10, name="a", pin="plugin"))
    assert "a" in made.fitting(asked.request, asked, ["a"]), "the limit is gone"


@pytest.mark.parametrize("policy", ["binpack", "spread", "metric", "keti"])
def test_the_first_pod_of_a_shape_is_assumed_also_on_more_nodes_than_a_call_can_look_at(policy: str) -> None:
    """Else its scheduler chooses by chance, and the next pod is decided on a wrong view."""
    made, asked = Ledger(), pod(mps=1)
    for number in range(800):  # no two alike: nothing is known of one because of another
        made.set_node(facts(*range(8000 + 8 * number, 8008 + 8 * number), name=f"n{number}", slots=10))
    life = Life(made, policy=policy)
    (node,) = life.choose(asked, list(made.node_names()), 0.0).fits
    holding = made.holding(asked.uid)
    assert holding is not None
    assert holding.node == node
