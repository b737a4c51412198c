"""What policies that pack prefer on nodes as live clusters have them. On traces `tests/sim/test_published.py` checks
every decision."""

import pytest

from gpushare.core.facts.packing.best_fit import BestFit
from gpushare.core.facts.packing.dot_product import DotProduct
from gpushare.core.facts.packing.gpu_clustering import GpuClustering
from gpushare.core.facts.packing.gpu_packing import GpuPacking
from gpushare.core.facts.packing.model import UNKNOWN, Ask, Scorer, View

ALL = [BestFit(), DotProduct(), GpuPacking(), GpuClustering()]
SHARE, WHOLE, WITHOUT = Ask(1000, 0, 1, 4000), Ask(1000, 0, 1, 0), Ask(1000, 0, 0, 0)


def node(*free: int, total: int = 16000, cpu: int = 64000, held: tuple[int, ...] = ()) -> View:
    return View(free, [total] * len(free), ["T4"] * len(free), cpu, held=frozenset(held))


@pytest.mark.parametrize("scorer", ALL)
def test_a_share_goes_to_the_fullest_gpu_with_room(scorer: Scorer) -> None:
    choice = scorer.one_gpu(SHARE, node(16000, 3999, 5000, 4000, 4000))
    assert choice is not None
    assert choice.gpu == 3


@pytest.mark.parametrize("scorer", ALL)
def test_a_whole_gpu_is_the_first_that_is_free(scorer: Scorer) -> None:
    choice = scorer.one_gpu(WHOLE, node(15999, 16000, 16000))
    assert choice is not None
    assert choice.gpu == 1


@pytest.mark.parametrize("scorer", ALL)
def test_without_room_there_is_no_choice(scorer: Scorer) -> None:
    assert scorer.one_gpu(SHARE, node(3999, 0)) is None
    assert scorer.one_gpu(WHOLE, node(15999)) is None


@pytest.mark.parametrize("scorer", ALL)
def test_what_counts_is_the_part_of_that_gpu(scorer: Scorer) -> None:
    small, large = node(8000, 16000), node(40000, 80000, total=80000)
    assert scorer.planned(WITHOUT, small, small.free) == scorer.planned(WITHOUT, large, large.free)
    assert scorer.planned(SHARE, small, [4000, 16000]) == scorer.planned(SHARE, large, [20000, 80000])


@pytest.mark.parametrize("scorer", [BestFit(), DotProduct()])
def test_cpu_that_nobody_told_counts_nothing(scorer: Scorer) -> None:
    unknown, full = node(16000, cpu=UNKNOWN), node(16000, cpu=1000)
    assert scorer.planned(WHOLE, unknown, [0]) <= scorer.planned(WHOLE, full, [0])


@pytest.mark.parametrize("scorer", [GpuPacking(), GpuClustering()])
def test_some_policies_do_not_mind_where_a_pod_without_gpus_goes(scorer: Scorer) -> None:
    assert {scorer.planned(WITHOUT, one, one.free) for one in (node(16000), node(0), node(9, 9, held=(0,)))} == {0}


def test_best_fit_takes_the_node_that_keeps_least() -> None:
    keys = [BestFit().one_gpu(SHARE, one) for one in (node(4000), node(16000), node(4000, cpu=2000))]
    assert sorted([2, 0, 1], key=lambda i: keys[i] or (0, 0)) == [2, 0, 1]


def test_gpu_packing_takes_gpus_in_use_then_nodes_in_use() -> None:
    keys = [GpuPacking().one_gpu(SHARE, one) for one in (node(5000, 16000), node(3000, 16000), node(16000, 16000))]
    assert keys == sorted(keys, key=lambda choice: choice or (0, 0))
    assert len({choice.key for choice in keys if choice is not None}) == 3


def test_gpu_clustering_takes_nodes_with_the_same_sort_of_pods() -> None:
    nodes = [node(8000, 16000, held=held) for held in ((0,), (0, 1), (), (1, 2))]
    keys = [choice.key for choice in [GpuClustering().one_gpu(SHARE, one) for one in nodes] if choice is not None]
    assert keys == sorted(keys)
    assert len(set(keys)) == 4
