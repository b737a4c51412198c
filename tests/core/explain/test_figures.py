"""How much of what is free can be used, by pods of which size."""

import pytest
from msgspec.structs import replace

from gpushare.core.explain import figures
from gpushare.core.explain.figures import Figures, Size
from gpushare.core.facts.model import PodFacts
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.steps import finish
from tests.support.builders import bound, facts, ledger, pod

GIB = 1024  # MiB


def counted(of: Ledger, *waiting: PodFacts) -> Figures:
    return finish(figures.counting(of, waiting))


def with_pods(*free: int, total: int = 16 * GIB) -> Ledger:
    """One node whose GPUs have so much free."""
    node = facts(*[total] * len(free))
    made = ledger(node)
    for gpu, left in enumerate(free):
        if left < total:
            made.observe(bound(pod(total - left), node, ((gpu,),)), 0.0)
    return made


def test_pods_of_each_size_are_counted_gpu_by_gpu() -> None:
    sizes = counted(with_pods(7 * GIB, 7 * GIB, 16 * GIB)).sizes
    assert {name: size.fitting for name, size in sizes.items()} == {
        "1GiB": 30, "4GiB": 6, "8GiB": 2, "16GiB": 1, "whole": 1, "p50": 1, "p90": 1
    }  # fmt: skip
    assert sizes["1GiB"].unusable == 0
    assert sizes["8GiB"].unusable == pytest.approx(1 - 16 / 30)
    assert sizes["whole"].unusable == pytest.approx(1 - 16 / 30)
    assert len(sizes) <= 8


def test_sizes_that_no_gpu_here_has_are_left_out() -> None:
    assert counted(with_pods(4 * GIB, total=4 * GIB)).sizes.keys() == {"1GiB", "4GiB", "whole"}


def test_percentiles_are_of_what_is_asked_on_one_gpu_by_all_that_run_or_wait() -> None:
    sizes = counted(with_pods(6 * GIB, 16 * GIB), *[pod(GIB)] * 7, pod(12 * GIB), pod(12 * GIB, split=2)).sizes
    # 1 GiB seven times, 6 twice, 10 and 12 once each.
    assert sizes["p50"].fitting == 22
    assert sizes["p90"].fitting == 1


def test_a_pod_that_is_about_to_be_bound_counts_once() -> None:
    of, assumed = ledger(facts(16 * GIB)), pod(8 * GIB)
    of.assume(assumed, "n", "binpack", 0.0)
    assert counted(of, assumed, pod(4 * GIB)).sizes["p50"].fitting == 2  # else it would be 8 GiB, which fits once


def test_what_is_asked_and_no_gpu_has_fits_never() -> None:
    assert counted(with_pods(16 * GIB), pod(99 * GIB)).sizes["p90"] == Size(0, 1.0)


def test_where_nothing_is_free_there_is_no_ratio() -> None:
    assert counted(with_pods(0)).sizes["1GiB"] == Size(0, None)


def test_unhealthy_gpus_and_nodes_that_take_no_pods_have_nothing_to_offer() -> None:
    sizes = counted(ledger(facts(16 * GIB, 16 * GIB, unhealthy=[1]), facts(16 * GIB, name="m", state="draining"))).sizes
    assert sizes["16GiB"] == Size(1, 0.0)
    assert sizes["whole"] == Size(1, 0.0)


def test_units_differ_and_count_the_same() -> None:
    assert counted(ledger(facts(16, unit="GiB"), facts(16 * GIB, name="m"))).sizes["8GiB"] == Size(4, 0.0)


def test_a_node_that_bounds_what_a_container_asks_fits_no_more() -> None:
    sizes = counted(ledger(facts(16 * GIB, pin="plugin", limit=4 * GIB))).sizes
    assert (sizes["4GiB"].fitting, sizes["8GiB"].fitting) == (4, 0)


def test_nodes_that_sell_by_count_are_not_ours_to_count() -> None:
    assert not counted(ledger(facts(16 * GIB, pin="nvidia"))).sizes


def test_a_bound_pod_whose_gpu_is_not_known_is_unplaced() -> None:
    of = with_pods(8 * GIB)
    assert counted(of).unplaced == 0
    of.observe(replace(pod(100), node="n"), 0.0)
    of.observe(replace(pod(100, direct=False), node="n"), 0.0)
    assert counted(of).unplaced == 2


def test_pods_of_a_node_that_shares_no_gpu_any_more_are_not_unplaced() -> None:
    of = with_pods(8 * GIB)
    of.remove_node("n")
    assert list(of.holdings())
    assert counted(of).unplaced == 0


def test_a_pod_that_holds_a_gpu_without_memory_asks_for_no_size() -> None:
    node = facts(0, 4 * GIB)  # a whole GPU that was lost since
    of = ledger(node)
    of.observe(bound(pod(whole=1), node, ((0,),)), 0.0)
    assert counted(of).sizes == {"1GiB": Size(4, 0.0), "4GiB": Size(1, 0.0), "whole": Size(1, 0.0)}


def test_an_empty_cluster_has_no_figures() -> None:
    assert counted(ledger(), pod(5)) == Figures({}, 0)


def test_nodes_may_go_between_two_steps() -> None:
    of = ledger(*[facts(16 * GIB, name=f"n{i}") for i in range(2 * figures.STEP_NODES)])
    steps = figures.counting(of, [])
    next(steps)
    next(steps)
    for name in list(of.node_names()):
        of.remove_node(name)
    assert finish(steps).sizes["whole"].fitting == figures.STEP_NODES


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 1), (51, 2), (90, 2), (91, 9), (100, 9)])
def test_percentiles_by_rank(percent: int, value: int) -> None:
    assert figures.percentile({1: 50, 9: 10, 2: 40}, percent) == value
