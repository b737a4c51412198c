"""Nodes ranked by points, for policies that give some: one key per node, the smaller the better.

What the GPUs of a node are worth to a shape is kept until the node changes, or what is measured there. Only what
depends on the pod itself, the points of the node, is added at each call.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpushare.core.facts.model import PodFacts, Request, Role, Share
from gpushare.core.facts.policies import IMPOSSIBLE, POLICIES, Score
from gpushare.core.facts.scoring import adjusted
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.facts.scoring.order import Order
from gpushare.core.facts.scoring.settings import Settings
from gpushare.core.ledger.answers import Answers
from gpushare.core.ledger.index import SUM_BITS
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.placement.room import Room

TOP = 1 << 20  # more than any score
MOST_FREE = (1 << SUM_BITS) - 1
POINTS_LOOKS = 4  # what it costs to work out the points of a GPU, in GPUs looked at


class Worth(NamedTuple):
    """What a node offers to a shape."""

    points: int  # of the GPUs that the pod would get
    many: bool  # it has several GPUs
    tie: int  # between equal scores: the smaller is better
    key: int  # of the node, if its own points count nothing


def keys(
    ledger: Ledger,
    request: Request,
    pod: PodFacts,
    among: Sequence[str],
    policy: str,
    budget: Budget,
    node_points: NodePoints | None,
) -> list[int]:
    """Of nodes that fit. A node that the budget does not reach counts as impossible: there are others to choose."""
    answers, score = ledger.answers(request, pod.namespace, (), budget), POLICIES[policy].score
    assert score is not None
    kept = answers.worths(policy, ledger.scoring)
    apart = _with_promises(ledger, among) if ledger.has_promises() else set()
    for node in [node for node in among if node not in kept and node not in apart]:
        if budget.left <= 0:
            break
        worth = _worth(ledger, answers, node, pod, policy, score, budget)
        if worth is not None or budget.left > 0:
            kept[node] = worth
    found: list[Worth | None] = list(map(kept.get, among))
    for i in [i for i, node in enumerate(among) if node in apart] if apart else ():
        found[i] = _worth(ledger, answers, among[i], pod, policy, score, budget) if budget.left > 0 else None
    own: Mapping[str, int] = {}
    if pod.needs is not None and node_points is not None:  # with a budget of its own: the other may be used up
        reached = [node for node, worth in zip(among, found, strict=True) if worth is not None]
        own = node_points.of_these(pod.needs, reached, max(CALL_LOOKS, budget.left))
    if not own:  # they count nothing; else nodes that it lacks were not reached
        return [IMPOSSIBLE if worth is None else worth.key for worth in found]
    key = _keys_of(score, ledger.scoring.settings)
    return [
        IMPOSSIBLE if worth is None or node not in own else key(own[node], worth.points, worth.many, worth.tie)
        for node, worth in zip(among, found, strict=True)
    ]


def key(
    ledger: Ledger, request: Request, pod: PodFacts, policy: str, budget: Budget
) -> Callable[[str, Budget], int | None]:
    """The key of a node with room, while the points of nodes themselves count nothing; None: the budget is used up."""
    answers, score = ledger.answers(request, pod.namespace, (), budget), POLICIES[policy].score
    assert score is not None

    def of(node: str, budget: Budget) -> int | None:
        worth = _worth(ledger, answers, node, pod, policy, score, budget)
        return None if worth is None else worth.key

    return of


def _keys_of(score: Score, settings: Settings) -> Callable[[int, int, bool, int], int]:
    """The key of a node out of its own points, those of its GPUs, whether it has several, and what decides between
    equal scores. The score is that of `adjusted.total`, worked out for thousands of nodes."""
    of_node, of_gpu = adjusted.weights(score, settings)
    extra, sign = adjusted.MANY_GPUS * settings.prefers_many_gpus, 1 if settings.lowest_first else -1

    def key(node: int, gpus: int, many: bool, tie: int) -> int:
        return (TOP + sign * (int(node * of_node + gpus * of_gpu + 0.5) + extra * many) << SUM_BITS) + tie

    return key


def _with_promises(ledger: Ledger, among: Sequence[str]) -> set[str]:
    """Nodes where something is promised: what they offer depends on the pod, so it is not kept."""
    states = [(node, ledger.node(node)) for node in among]
    return {node for node, state in states if state is not None and state.promised}


def _worth(
    ledger: Ledger, answers: Answers, node: str, pod: PodFacts, policy: str, score: Score, budget: Budget
) -> Worth | None:
    state, request = ledger.node(node), answers.request
    room = state.room_for(pod) if state is not None else None
    if state is None or room is None:
        return None
    known = state.has_order(policy, ledger.scoring, single=request.one_gpu)
    order = state.order(policy, ledger.scoring, single=request.one_gpu)
    assert order is not None
    budget.left -= len(room.free) * (1 if known else POINTS_LOOKS)
    if request.one_gpu and request.shares[0].role is Role.APP and not request.shares[0].kind.exclusive:
        points = _best(request.shares[0], room, order)
    else:
        places = answers.question.places(room, policy, budget, order)
        points = None if places is None else order.worth(gpu for at in places for gpu in at)
    if points is None:
        return None
    settings, many = ledger.scoring.settings, len(room.rising) > 1
    tie = room.sum_free if settings.prefer == "binpack" else MOST_FREE - room.sum_free
    return Worth(points, many, tie, _keys_of(score, settings)(0, points, many, tie))


def _best(share: Share, room: Room, order: Order) -> int | None:
    """The points of the best GPU that has room for one share: what a search would find, found faster."""
    facts, best = room.facts, -1
    each, slots = share.each_in(facts.unit), share.kind.slots
    for position, gpu in enumerate(facts.gpus):
        points, with_slot = order.points[position], room.free_slots[position] >= slots
        if points > best and gpu.healthy and with_slot and room.free[position] >= (each or share.on(gpu, facts)):
            best = points
    return best if best >= 0 else None
