"""The points of KETI's GPU-Scheduler, to the digit: values worked out from the formulas of its documentation."""

import pytest

from gpushare.core.facts import objects
from gpushare.core.facts.intree import NodeRules
from gpushare.core.facts.model import Needs
from gpushare.core.facts.policies import POLICIES
from gpushare.core.facts.scoring import adjusted, keti, node_score
from gpushare.core.facts.scoring.load import GpuLoad
from gpushare.core.facts.scoring.order import Order
from gpushare.core.facts.scoring.settings import Settings

GIB = 1024  # MiB
NODE = NodeRules("n", {"zone": "a"}, (), False, (), (32_000, 128 << 30, 500 << 30))
NBODY = Needs((250, 6400 << 20, 0))


def gpu(free: int, total: int, pods: int) -> GpuLoad:
    return GpuLoad(total * GIB, pods=pods, used=(total - free) * GIB)


@pytest.mark.parametrize(
    ("free", "total", "largest", "pods", "points"),
    [(40, 40, 40, 0, 99), (20, 40, 40, 1, 64), (12, 12, 40, 0, 76), (40, 40, 40, 11, 0), (40, 40, 40, 10, 66)],
)
def test_the_points_of_a_gpu(free: int, total: int, largest: int, pods: int, points: int) -> None:
    load = gpu(free, total, pods)
    assert keti.points(load, largest * GIB) == points
    assert sum(amount for _, amount in keti.terms(load, largest * GIB)) == points


def test_what_few_pods_are_worth() -> None:
    given = [dict(keti.terms(gpu(40, 40, pods), 40 * GIB))["LeastAllocatedPodGPU"] for pods in range(11)]
    assert given == [33, 30, 26, 23, 20, 16, 13, 10, 6, 3, 0]


def test_the_points_of_a_node() -> None:
    assert node_score.terms(NBODY, NODE) == (
        ("LeastRequested", 24),
        ("BalancedResourceAllocation", 25),
        ("NodeAffinity", 0),
        ("TaintToleration", 25),
    )


@pytest.mark.parametrize(("weights", "points"), [([100], 25), ([100, 1], 13), ([], 0)])
def test_a_weaker_preference_that_is_met_too_is_worth_less(weights: list[int], points: int) -> None:
    met = objects.Term((objects.Expression("zone", "In", ("a",)),))
    missed = objects.PreferredTerm(90, objects.Term((objects.Expression("zone", "In", ("b",)),)))
    needs = Needs(NBODY.amounts, (missed, *(objects.PreferredTerm(weight, met) for weight in weights)))
    assert dict(node_score.terms(needs, NODE))["NodeAffinity"] == points


def test_a_node_with_a_taint_that_only_warns_is_worth_less_unless_it_is_tolerated() -> None:
    soft = NodeRules("n", {}, (), False, (objects.Taint("old", "", "PreferNoSchedule"),), NODE.supply)
    assert dict(node_score.terms(NBODY, soft))["TaintToleration"] == 0
    tolerant = Needs(NBODY.amounts, (), (objects.Toleration("old", "Exists"),))
    assert dict(node_score.terms(tolerant, soft))["TaintToleration"] == 25


def test_a_pod_that_asks_for_more_than_the_node_has_gets_nothing_for_it() -> None:
    assert dict(node_score.terms(Needs((64_000, 256 << 30, 0)), NODE))["BalancedResourceAllocation"] == 0
    assert dict(node_score.terms(Needs((64_000, 256 << 30, 0)), NODE))["LeastRequested"] == 5


def test_a_node_without_storage_for_pods_is_not_divided_by_zero() -> None:
    bare = NodeRules("n", {}, (), False)
    assert dict(node_score.terms(Needs((1, 1, 1)), bare)) == {
        "LeastRequested": 0, "BalancedResourceAllocation": 0, "NodeAffinity": 0, "TaintToleration": 25,
    }  # fmt: skip


@pytest.mark.parametrize(("gpus", "score"), [(1, 92), (2, 80)])
def test_the_score_of_a_node_is_that_of_its_best_gpus_and_its_own(gpus: int, score: int) -> None:
    policy = POLICIES["keti"].score
    assert policy is not None
    points = Order((99, 64)).worth(range(gpus))
    node = sum(amount for _, amount in node_score.terms(NBODY, NODE))
    assert node == 74
    assert adjusted.total(policy, Settings(node_weight=0.3, gpu_weight=0.7), node, points, many=True) == score
    assert adjusted.total(policy, Settings(), node, points, many=False) == score


def test_a_gpu_whose_use_is_unknown_is_neither_idle_nor_full() -> None:
    unknown, idle, full = (GpuLoad(40 * GIB, used=used) for used in (None, 0, 40 * GIB))
    assert keti.points(full, 40 * GIB) < keti.points(unknown, 40 * GIB) < keti.points(idle, 40 * GIB)
    given_out = GpuLoad(40 * GIB, granted=39 * GIB, used=None)
    assert keti.points(given_out, 40 * GIB) < keti.points(unknown, 40 * GIB)
