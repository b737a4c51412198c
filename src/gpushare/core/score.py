"""Which of the nodes that fit is best, by named policy.

Pure. `binpack` prefers the node where the chosen GPU keeps the least free, then the fuller node: small pieces go
where they fit tightly and whole GPUs stay whole. `spread` is the opposite. Called by the extender's prioritize.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import nsmallest
from itertools import repeat

from gpushare.core import choose
from gpushare.core.ledger import IMPOSSIBLE, SUM_BITS, Ledger
from gpushare.core.model import PodFacts, Request, Role

BEST = 10  # kube-scheduler's largest extender score, and how many nodes are worth naming: the others count 0
NOWHERE = (-1, IMPOSSIBLE)


def best(ledger: Ledger, request: Request, pod: PodFacts, among: Sequence[str], policy: str) -> list[tuple[str, int]]:
    """The best of the named nodes that fit with their scores, the best first.

    Exactly one node gets the top score: it is the one that will be held for the pod, and a tie would let
    kube-scheduler choose another. After it, equal nodes get equal scores.
    """
    plain = request.one_share and request.shares[0].role is Role.APP
    if not plain or ledger.special:
        among = ledger.fitting(request, pod, among)
    if plain:
        keys = _one_share_keys(ledger, request, among, policy)
    else:
        keys = _planned_keys(ledger, request, pod, among, policy)
    scores, rank, before = [], BEST, None
    for position, (key, node) in enumerate(keys):
        if position == 1 or (position > 1 and key != before):
            rank -= 1
        scores.append((node, rank))
        before = key
    return scores


def _one_share_keys(ledger: Ledger, request: Request, among: Sequence[str], policy: str) -> list[tuple[int, str]]:
    """One number per node: what its chosen GPU has free, then the node."""
    least = request.shares[0].units << SUM_BITS
    spots = map(ledger.spots.get((request.pin, request.unit), {}).get, among, repeat(NOWHERE))
    if policy == choose.SPREAD:
        keys = [-spot[-2] if spot[-2] >= least else IMPOSSIBLE for spot in spots]
    else:
        keys = [spot[bisect_left(spot, least)] for spot in spots]
    best_first = nsmallest(BEST, range(len(keys)), key=keys.__getitem__)
    return [(keys[i], among[i]) for i in best_first if keys[i] != IMPOSSIBLE]


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
    return nsmallest(BEST, keys, key=lambda row: row[0])


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
