"""Policies: which GPU and which node a request prefers, by name.

A policy is one entry of `POLICIES`. Request parsing, the command line, its help, the choice of GPUs and the ranking of
nodes all read this table: to add a policy, add an entry and its tests.

Some go by what is free: on the GPUs that a pod would get, then on the node.

Others give points to each GPU by what it does (`scoring`). The score of a node is that of its GPUs and its own, with a
weight for each. The last compare what a pod would leave behind on each node, CPU and memory included (`packing`).
"""

from collections.abc import Callable
from typing import NamedTuple

from gpushare.core.facts.packing import best_fit, dot_product, fgd, gpu_clustering, gpu_packing, vrc
from gpushare.core.facts.packing.model import Mixture, Scorer
from gpushare.core.facts.scoring import keti, metric
from gpushare.core.facts.scoring.load import GpuLoad, Terms

IMPOSSIBLE = 1 << 62  # the key of a node without room: larger than any other


class Score(NamedTuple):
    """How points are given. Both functions also get the memory of the largest GPU of the cluster, in MiB."""

    points: Callable[[GpuLoad, int], int]
    terms: Callable[[GpuLoad, int], Terms]  # what the points consist of, for people
    node_weight: float
    gpu_weight: float


class Policy(NamedTuple):
    """What decides between GPUs, and between nodes, that all have room."""

    name: str
    help: str  # what it prefers, for --help
    emptiest_first: bool  # GPUs with room, and then nodes: the emptiest first, or the fullest first
    score: Score | None = None  # by points; then the above decides only where points do not
    packing: Callable[[Mixture], Scorer] | None = None  # by what is left behind; then the same holds
    by_chance: bool = False  # then nothing decides


def _packing(name: str, help: str, make: Callable[[Mixture], Scorer]) -> Policy:
    """By what is left behind; where that is equal, as binpack."""
    return Policy(name, help, False, packing=make)


def _always(scorer: Scorer) -> Callable[[Mixture], Scorer]:
    """For policies that do not look at which pods come: what was ranked stays ranked when others come."""
    return lambda _: scorer


BINPACK = Policy("binpack", "the fullest GPU and node that have room", False)
SPREAD = Policy("spread", "the emptiest GPU and node", True)
KETI = Policy("keti", "by the points of KETI's GPU-Scheduler", True, Score(keti.points, keti.terms, 0.3, 0.7))
METRIC = Policy(
    "metric", "the GPU that does least, as it was measured", True,
    Score(metric.points, metric.terms, 0.0, 1.0),
)  # fmt: skip
RANDOM = Policy("random", "any node and GPU that have room", False, by_chance=True)
BEST_FIT = _packing("best-fit", "the node that keeps the least GPU and CPU", _always(best_fit.BestFit()))
DOT_PRODUCT = _packing("dotprod", "the smallest product of free and asked", _always(dot_product.DotProduct()))
GPU_PACKING = _packing("gpu-packing", "GPUs in use before unused ones, then nodes", _always(gpu_packing.GpuPacking()))
GPU_CLUSTERING = _packing("gpu-clustering", "nodes with pods of as many GPUs", _always(gpu_clustering.GpuClustering()))
FGD = _packing(fgd.NAME, "the fewest free parts that the pods to come could not use", fgd.Fgd)
VRC = _packing("vrc", "what is left is worth most for the pods to come", vrc.Vrc)

DEFAULT = BINPACK.name
POLICIES = {
    policy.name: policy
    for policy in (
        BINPACK, SPREAD, RANDOM, KETI, METRIC, BEST_FIT, DOT_PRODUCT, GPU_PACKING, GPU_CLUSTERING, FGD, VRC
    )
}  # fmt: skip
