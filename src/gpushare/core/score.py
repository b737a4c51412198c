"""Which of the nodes that fit is best, by named policy.

Pure. `binpack` prefers the node where the chosen GPU keeps the least free, then the fuller node: small pieces go
where they fit tightly and whole GPUs stay whole. `spread` is the opposite. Called by the extender's prioritize.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import nsmallest
from itertools import repeat

from gpushare.core import choose
from gpushare.core.ledger import MORE_THAN_ANY, Ledger
from gpushare.core.model import PodFacts, Request

BEST = 10  # kube-scheduler's largest extender score, and how many nodes are worth naming: the others count 0
SUM_BITS = 40  # a node's free units in all fit below that
NOWHERE = ((-1, MORE_THAN_ANY), 0)
IMPOSSIBLE = MORE_THAN_ANY << SUM_BITS


def best(ledger: Ledger, request: Request, pod: PodFacts, among: Sequence[str], policy: str) -> list[tuple[str, int]]:
    """The best nodes with their scores, the best first.

    Exactly one node gets the top score: it is the one that will be held for the pod, and a tie would let
    kube-scheduler choose another. After it, equal nodes get equal scores.
    """
    if request.one_share:
        keys = _one_share_keys(ledger, request.shares[0].units, among, policy)
    else:
        keys = _planned_keys(ledger, request, pod, among, policy)
    scores, rank, before = [], BEST, None
    for position, (key, node) in enumerate(nsmallest(BEST, keys)):
        if position == 1 or (position > 1 and key != before):
            rank -= 1
        scores.append((node, rank))
        before = key
    return scores


def _one_share_keys(ledger: Ledger, need: int, among: Sequence[str], policy: str) -> list[tuple[int, str]]:
    """One number per node: what its chosen GPU has free, then the node; names only for the few that matter."""
    spots = map(ledger.spots.get, among, repeat(NOWHERE))
    if policy == choose.SPREAD:
        keys = [-(rising[-2] << SUM_BITS) - free if rising[-2] >= need else IMPOSSIBLE for rising, free in spots]
    else:
        keys = [(rising[bisect_left(rising, need)] << SUM_BITS) + free for rising, free in spots]
    last = min(sorted(keys)[: BEST + 1][-1], IMPOSSIBLE - 1) if keys else 0
    return [(key, node) for key, node in zip(keys, among, strict=True) if key <= last]


def _planned_keys(
    ledger: Ledger, request: Request, pod: PodFacts, among: Sequence[str], policy: str
) -> list[tuple[int, str]]:
    ranks = ledger.answers(request, pod.namespace).ranks.setdefault(policy, {})
    keys = []
    for node in among:
        if node not in ranks:
            ranks[node] = _rank(ledger, request, node, policy)
        rank = ranks[node]
        if rank is not None:
            keys.append((rank, node))
    return keys


def _rank(ledger: Ledger, request: Request, node: str, policy: str) -> int | None:
    """What the chosen GPUs keep free together, and the node; smaller is better."""
    state = ledger.nodes.get(node)
    if state is None or state.room is None:
        return None
    places = choose.plan(request, state.room, policy)
    if places is None:
        return None
    taken = choose.charges(request.shares, state.room.facts.gpus, places)
    left = sum(state.room.free[gpu] - amount for gpu, amount in taken)
    key = (left << SUM_BITS) + state.room.sum_free
    return -key if policy == choose.SPREAD else key
