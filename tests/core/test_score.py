"""The best node: exactly one at the top, and by the named policy."""

import pytest

from gpushare.core import score
from gpushare.core.ledger import Ledger
from gpushare.core.model import PodFacts, Request
from tests.core.builders import bound, facts, pod


def best(
    made: Ledger, asked: PodFacts, policy: str = "binpack", *, among: list[str] | None = None
) -> list[tuple[str, int]]:
    assert isinstance(asked.claim, Request)
    return score.best(made, asked.claim, asked, list(made.nodes) if among is None else among, policy)


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


def test_a_pledged_node_counts_only_for_those_it_is_pledged_to() -> None:
    made = world(a=(6,), b=(10,))
    made.observe(pod(6, name="waits", nominated="a", priority=5), 0.0)
    assert [node for node, _ in best(made, pod(6))] == ["b"]
    assert [node for node, _ in best(made, pod(6, priority=9))] == ["a", "b"]
