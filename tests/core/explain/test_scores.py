"""What nodes score is told point by point, and the points add up to what decided."""

import random
from typing import Any

import msgspec
import pytest

from gpushare.core.explain import verdict
from gpushare.core.explain.report import Explanation, NodeScore
from gpushare.core.facts.model import Needs
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.facts.scoring.settings import Settings
from gpushare.core.facts.vitals import GpuVitals
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.loads import Measured
from tests.support import builders
from tests.support.builders import facts, pod


def cluster(seed: int = 1) -> Ledger:
    dice = random.Random(seed)
    ledger = builders.ledger(*(facts(8000, 8000, name=name, slots=10) for name in "abc"))
    for name in "abc":
        gpus = {
            f"GPU-{name}-{i}": GpuVitals(uuid=f"GPU-{name}-{i}", used_mib=dice.randrange(8000), utilization=30)
            for i in range(2)
        }
        ledger.measure(name, Measured(1.0, gpus))
    return ledger


def told(ledger: Ledger, policy: str, **more: Any) -> Explanation:
    return verdict.explain(ledger, pod(mps=1), policy=policy, **more)


def added(node: NodeScore) -> int:
    """What a reader gets who adds up what is told."""
    value = node.points * node.gpu_weight + sum(node.node.values()) * node.node_weight
    return int(value + 0.5) + node.extra


@pytest.mark.parametrize("policy", ["keti", "metric"])
@pytest.mark.parametrize("said", [Settings(), Settings(prefer="binpack"), Settings(prefers_many_gpus=True)])
def test_what_is_told_adds_up_and_the_first_is_where_it_goes(policy: str, said: Settings) -> None:
    for seed in range(10):
        ledger = cluster(seed)
        ledger.apply(said)
        explanation = told(ledger, policy)
        assert explanation.policy is not None
        assert explanation.policy.name == policy
        assert [node.score for node in explanation.scores] == sorted(
            (node.score for node in explanation.scores), reverse=True
        )
        for node in explanation.scores:
            (chosen,) = (gpu for gpu in node.gpus if gpu.chosen)
            assert node.points == chosen.points == max(gpu.points for gpu in node.gpus)
            assert all(gpu.points == sum(gpu.terms.values()) for gpu in node.gpus)
            assert node.score == added(node)
        (way,) = explanation.ways
        assert way.node == explanation.scores[0].name
        assert way.spots is not None
        assert [spot.gpu for spot in way.spots] == [gpu.gpu for gpu in explanation.scores[0].gpus if gpu.chosen]


def test_the_points_of_nodes_are_told_where_they_count() -> None:
    points = NodePoints(lambda *_: {"a": 0, "b": 500, "c": 0}, lambda needs, node: (("own", 500 * (node == "b")),))
    waiting = msgspec.structs.replace(pod(mps=1), needs=Needs())
    explanation = verdict.explain(cluster(), waiting, policy="keti", node_points=points)
    first = explanation.scores[0]
    assert (first.name, first.node, first.node_weight, first.gpu_weight) == ("b", {"own": 500}, 0.3, 0.7)
    assert first.score == added(first)


def test_policies_without_points_tell_none() -> None:
    explanation = told(cluster(), "binpack")
    assert explanation.scores == []
    assert explanation.policy is not None
    assert explanation.policy.name == "binpack"


def test_a_pod_that_fits_nowhere_has_no_scores() -> None:
    assert verdict.explain(cluster(), pod(9000), policy="metric").scores == []
