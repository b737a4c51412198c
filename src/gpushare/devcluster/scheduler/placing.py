"""One scheduling cycle of the stand-in scheduler: the node for a pod, or kube-scheduler's sentence why there is none.

First the scheduler's own checks, on every node. Then the extender is asked about the nodes that passed; if none did it
is not asked. Then scores, unless a single node is left.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from gpushare.core.facts import intree
from gpushare.core.facts.intree import Node, Pod
from gpushare.devcluster.scheduler import hints
from gpushare.devcluster.scheduler.cache import Cache
from gpushare.devcluster.scheduler.extenders import Extender

NO_NODES = "no nodes available to schedule pods"
NONE_FITS = "0/{nodes} nodes are available:"


class Unfit(NamedTuple):
    """No node fits. `refused_by`: codes of intree's obstacles, and hints.EXTENDER."""

    message: str
    refused_by: frozenset[str]


async def place(pod: Pod, cache: Cache, extender: Extender | None) -> str | Unfit:
    """The node this pod should be bound to."""
    if not cache.nodes:
        return Unfit(NO_NODES, frozenset())
    total, reasons, refused_by = len(cache.nodes), Counter[str](), set[str]()
    needs, scores = intree.needs(pod), dict[str, int]()  # scores of the nodes that are left
    for name, node in sorted(cache.nodes.items()):
        obstacles = intree.obstacles(pod, node, cache.taken(name))
        reasons.update(intree.reasons(obstacles))
        if obstacles:
            refused_by.add(obstacles[0].code)
        else:
            scores[name] = _free_share(needs, node, cache.taken(name))
    asked = extender if extender is not None and extender.interested(pod) else None
    if asked is not None and scores:
        left, failed = await asked.filter(pod, list(scores))
        reasons.update(failed.values())
        if len(left) != len(scores):
            refused_by.add(hints.EXTENDER)
        scores = {name: scores[name] for name in left}
    if not scores:
        return Unfit(_sentence(total, reasons), frozenset(refused_by))
    if asked is not None and len(scores) > 1:
        for name, points in (await asked.prioritize(pod, list(scores))).items():
            scores[name] = scores.get(name, 0) + points
    return min(scores, key=lambda name: (-scores[name], name))


def _free_share(needs: Mapping[str, int], node: Node, taken: Mapping[str, int]) -> int:
    """How much of a node's CPU and memory would be left, 0 to 100: the scheduler's only score of its own."""
    offers, shares = intree.offered(node), []
    for resource in (intree.CPU, intree.MEMORY):
        if offered := offers.get(resource):
            left = offered - taken.get(resource, 0) - needs.get(resource, 0)
            shares.append(100 * max(left, 0) // offered)
    return sum(shares) // max(len(shares), 1)


def _sentence(nodes: int, reasons: Counter[str]) -> str:
    """Equal reasons are counted; the counted ones are sorted as text, 10 before 2."""
    counted = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return NONE_FITS.format(nodes=nodes) + (f" {', '.join(counted)}." if counted else "")
