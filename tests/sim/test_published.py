"""The published policies decide as published: on a small trace every decision is checked by rules that were written
apart, and if the published results are there, the same figures come out to the last digit."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from bench.published import EXACT, Published, figures
from gpushare.sim import arrivals
from gpushare.sim.cluster import Cluster, Pods
from gpushare.sim.fragments import Fragments
from gpushare.sim.learning import true_mix
from gpushare.sim.trace import Trace
from tests.sim import published_rules, small

DATA = Path(os.environ.get("DATA", ""))


def busy(seed: int) -> Trace:
    """Some pods name their models in other words than those that mean the same."""
    made = small.trace(200, 30, seed)
    pods = [
        msgspec.structs.replace(pod, models=pod.models[::-1] * 2) if i % 3 else pod for i, pod in enumerate(made.pods)
    ]
    return Trace(made.nodes, tuple(pods))


@pytest.mark.parametrize("policy", EXACT)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_decision_is_that_of_the_published_formulas(policy: str, seed: int) -> None:
    trace = busy(seed)
    order, ranks = arrivals.drawn(trace, seed, 1.3)
    rules, cluster, pods = (
        published_rules.Rules(trace, list(ranks), policy),
        Cluster(trace.nodes, ranks, policy),
        Pods(),
    )
    mix = true_mix(trace, cluster)
    cluster.ledger.learn(mix)
    fragments = Fragments(cluster, mix)
    refused = 0
    for number, position in enumerate(order):
        pod = trace.pods[position]
        expected, node = rules.place(pod), cluster.place(pods.facts(pod, str(number)))
        refused += node is None
        assert node == (None if expected is None else name_of(trace, ranks, expected.node)), number
        if node is None or expected is None:
            continue
        holding = cluster.ledger.holding(str(number))
        gpus = [charge.gpu for charge in holding.charges or ()] if holding is not None else []
        assert tuple(gpus) == expected.gpus, number
        fragments.changed(node)
        assert fragments.amount == pytest.approx(sum(map(rules.fragment, rules.machines)), rel=1e-12)
    assert refused


def name_of(trace: Trace, ranks: Sequence[int], position: int) -> str:
    return f"{ranks[position]:02}-{trace.nodes[position].name}"


@pytest.mark.skipif(not (DATA / "published").is_dir(), reason="DATA=FOLDER, with the published results, is not set")
@pytest.mark.parametrize(
    ("trace", "policy", "seed", "load"),
    [
        ("default", "best-fit", 42, 1.3),
        ("default", "best-fit", 43, 0.4),
        ("default", "fgd", 42, 1.3),
        ("default", "fgd", 43, 0.4),
        ("gpushare100", "fgd", 43, 0.4),
        ("gpuspec33", "gpu-packing", 42, 0.4),
        ("multigpu50", "gpu-clustering", 43, 0.4),
        ("multigpu50", "dotprod", 42, 0.4),
    ],
)
def test_the_published_results_come_out_to_the_last_digit(trace: str, policy: str, seed: int, load: float) -> None:
    published = Published(str(DATA))
    [run] = published.replays(trace, published.trace(trace), policy, [seed], load)
    assert published.equal(trace, run) == figures(load)
