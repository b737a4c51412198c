"""Policies: which GPU and which node a request prefers, by name.

A policy is one entry of `POLICIES`. Request parsing, the command line, its help, the choice of GPUs and the ranking of
nodes all read this table: to add a policy, add an entry and its tests.

Some go by what is free. Ranking compares thousands of nodes, so a node is a tuple of numbers here: one per healthy GPU
in rising order, then `IMPOSSIBLE`. The high bits of a number are the GPU's free units, the low bits the node's.

Others give points to each GPU by what it does (`scoring`). The score of a node is that of its GPUs and its own, with a
weight for each. The last compare what a pod would leave behind on each node, CPU and memory included (`packing`).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gpushare.core.facts.packing import best_fit, vrc
from gpushare.core.facts.packing.model import Mixture, Scorer
from gpushare.core.facts.scoring import keti, metric
from gpushare.core.facts.scoring.load import GpuLoad, Terms

IMPOSSIBLE = 1 << 62  # the key of a node without room: larger than any other

NodeKeys = Callable[[Iterable[tuple[int, ...]], int], list[int]]


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
    emptiest_first: bool  # the order of GPUs with room: the emptiest first, or the fullest first
    node_keys: NodeKeys  # one key per node, given the least number of a GPU with room: the smallest is best
    score: Score | None = None  # by points; then the two above decide only where points do not
    packing: Callable[[Mixture], Scorer] | None = None  # by what is left behind; then the same holds


def _fullest(nodes: Iterable[tuple[int, ...]], least: int) -> list[int]:
    """The GPU with the least free that has room, then the node with the least free."""
    return [node[bisect_left(node, least)] for node in nodes]


def _emptiest(nodes: Iterable[tuple[int, ...]], least: int) -> list[int]:
    """The GPU with the most free, then the node with the most free."""
    return [-node[-2] if node[-2] >= least else IMPOSSIBLE for node in nodes]


BINPACK = Policy("binpack", "the fullest GPU and node that have room", False, _fullest)
SPREAD = Policy("spread", "the emptiest GPU and node", True, _emptiest)
KETI = Policy(
    "keti", "by the points of KETI's GPU-Scheduler", True, _emptiest, Score(keti.points, keti.terms, 0.3, 0.7)
)
METRIC = Policy(
    "metric", "the GPU that does least, as it was measured", True, _emptiest,
    Score(metric.points, metric.terms, 0.0, 1.0),
)  # fmt: skip
BEST_FIT = Policy("best-fit", "the node that keeps the least GPU and CPU", False, _fullest, packing=best_fit.BestFit)
VRC = Policy("vrc", "where what is left is worth most for the pods that come", False, _fullest, packing=vrc.Vrc)

DEFAULT = BINPACK.name
POLICIES = {policy.name: policy for policy in (BINPACK, SPREAD, KETI, METRIC, BEST_FIT, VRC)}
