"""Which of the nodes that fit is best, by named policy.

Pure. `facts.policies` has the policies. `binpack` prefers the node where the chosen GPU keeps the least free, then the
node with the least free: small requests go where they fit tightly, and whole GPUs stay whole. `spread` is the opposite.
Policies that give points are ranked by `scored`.
"""

from collections.abc import Sequence
from heapq import nsmallest
from itertools import repeat

from gpushare.core.facts.model import PodFacts, Request, Role
from gpushare.core.facts.packing.model import Ask, Scorer
from gpushare.core.facts.policies import DEFAULT, IMPOSSIBLE, POLICIES
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.ledger.answers import PICTURES, Answers
from gpushare.core.ledger.index import SUM_BITS
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.order import offer as offers
from gpushare.core.order.offer import Offer
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room
from gpushare.core.scheduling import scored

BEST = 10  # kube-scheduler's largest extender score, and how many nodes are worth naming: the others count 0
NOWHERE = (-1, IMPOSSIBLE)
RANKS_PART = 4  # one part in so many of a call is for ranking


def best(
    ledger: Ledger,
    request: Request,
    pod: PodFacts,
    offered: Offer | Sequence[str],
    policy: str,
    budget: Budget | None = None,
    node_points: NodePoints | None = None,
) -> list[tuple[str, int]]:
    """The best of the named nodes that fit with their scores, the best first.

    Exactly one node gets the top score: the pod will be assumed there, and a tie would let
    kube-scheduler choose another. After it, equal nodes get equal scores.
    """
    among = sorted(set(offers.of(offered).names))
    among, keys = _keys(ledger, request, pod, among, policy, budget or Budget(cost.UNHURRIED_LOOKS), node_points)
    scores, rank, before = [], BEST, None
    order = [i for i in nsmallest(BEST, range(len(keys)), key=keys.__getitem__) if keys[i] != IMPOSSIBLE]
    if _takes_second(ledger, policy):
        order[:2] = reversed(order[:2])
    for position, i in enumerate(order):
        if position == 1 or (position > 1 and keys[i] != before):
            rank -= 1
        scores.append((among[i], rank))
        before = keys[i]
    return scores


def first(
    ledger: Ledger,
    request: Request,
    pod: PodFacts,
    offered: Offer | Sequence[str],
    policy: str,
    budget: Budget | None = None,
    node_points: NodePoints | None = None,
) -> str | None:
    """The node that `best` would name first, or None."""
    among = sorted(set(offers.of(offered).names))
    among, keys = _keys(ledger, request, pod, among, policy, budget or Budget(cost.UNHURRIED_LOOKS), node_points)
    if _takes_second(ledger, policy) and len(keys) > 1:
        one, two = nsmallest(2, range(len(keys)), key=keys.__getitem__)
        return among[two] if keys[two] != IMPOSSIBLE else among[one] if keys[one] != IMPOSSIBLE else None
    least = min(keys, default=IMPOSSIBLE)
    return None if least == IMPOSSIBLE else among[keys.index(least)]


def _takes_second(ledger: Ledger, policy: str) -> bool:
    """Whether an admin wants the node after the best."""
    return ledger.scoring.settings.second_best and POLICIES[policy].score is not None


def _keys(
    ledger: Ledger,
    request: Request,
    pod: PodFacts,
    among: Sequence[str],
    policy: str,
    budget: Budget,
    node_points: NodePoints | None,
) -> tuple[Sequence[str], list[int]]:
    """Of the nodes that are worth looking at one number each, the smaller the better, IMPOSSIBLE if it does not fit."""
    if POLICIES[policy].score is not None:
        among = _fitting(ledger, request, pod, among, budget)
        return among, scored.keys(ledger, request, pod, among, policy, budget, node_points)
    scorer = ledger.scorer(policy)
    if scorer is not None:
        among = _fitting(ledger, request, pod, among, budget)
        return among, [packed_key(ledger, request, pod, node, scorer) for node in among]
    plain = request.one_share and request.shares[0].role is Role.APP
    if not plain or ledger.has_special_nodes() or pod.only_node:
        among = _fitting(ledger, request, pod, among, budget)
    if plain:
        return among, _one_share_keys(ledger, request, among, policy)
    return among, _planned_keys(ledger, request, pod, among, policy, budget)


def _fitting(ledger: Ledger, request: Request, pod: PodFacts, among: Sequence[str], budget: Budget) -> Sequence[str]:
    """Those that fit. A part of the budget is left to rank them: the best of some is better than any of them, and only
    a pod whose node is known is assumed."""
    for_ranks = max(budget.left, 0) // RANKS_PART
    budget.left -= for_ranks
    fits = ledger.fitting(request, pod, among, budget)
    budget.left += for_ranks
    return fits


def _one_share_keys(ledger: Ledger, request: Request, among: Sequence[str], policy: str) -> list[int]:
    """One number per node: what its chosen GPU has free, then the node."""
    least = request.shares[0].units << SUM_BITS
    spots = map(ledger.spots(request).get, among, repeat(NOWHERE))
    return POLICIES[policy].node_keys(spots, least)


def _planned_keys(
    ledger: Ledger, request: Request, pod: PodFacts, among: Sequence[str], policy: str, budget: Budget
) -> list[int]:
    """A node that the budget does not reach counts as impossible: there are others to choose from."""
    answers = ledger.answers(request, pod.namespace, (), budget)
    ranks = answers.ranks.setdefault(policy, {})
    keys = []
    for node in among:
        rank = ranks.get(node)
        if rank is None and node not in ranks and budget.left > 0:
            rank = _rank(ledger, answers, node, policy, budget)
            if rank is not None or budget.left > 0:
                ranks[node] = rank
        keys.append(IMPOSSIBLE if rank is None else rank)
    return keys


def _rank(ledger: Ledger, answers: Answers, node: str, policy: str, budget: Budget) -> int | None:
    """What the chosen GPUs keep free together, and the node; smaller is better."""
    state = ledger.node(node)
    if state is None or state.room is None:
        return None
    known, picture = answers.pictured_ranks.setdefault(policy, {}), state.room.picture
    if picture not in known:
        rank = _planned_rank(answers.question, state.room, policy, budget)
        if rank is None and budget.left <= 0:
            return None  # not known yet
        if len(known) >= PICTURES:
            known.clear()
        known[picture] = rank
    budget.left -= 1
    return known[picture]


def packed_key(ledger: Ledger, request: Request, pod: PodFacts, node: str, scorer: Scorer) -> int:
    """By what the pod would leave behind there."""
    state, view, ask = ledger.node(node), ledger.view(node, pod), Ask.of(pod)
    room = state.room_for(pod) if state is not None else None
    if view is None or room is None:
        return IMPOSSIBLE
    if request.one_gpu:
        best = scorer.one_gpu(ask, view)
        return IMPOSSIBLE if best is None else best.key
    places = gpu_choice.plan(request, room, DEFAULT)
    if places is None:
        return IMPOSSIBLE
    free = list(view.free)
    for charge in gpu_choice.charges(request.shares, room.facts, places):
        free[charge.gpu] -= charge.units
    return scorer.planned(ask, view, free)


def _planned_rank(question: Question, room: Room, policy: str, budget: Budget) -> int | None:
    left = question.left_after(room, policy, budget)
    if left is None:
        return None
    node = ((left << SUM_BITS) + room.sum_free, IMPOSSIBLE)
    return POLICIES[policy].node_keys((node,), 0)[0]
