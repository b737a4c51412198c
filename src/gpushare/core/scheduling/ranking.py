"""Which of the nodes that fit is best, by named policy.

Pure. `facts.policies` has the policies. `binpack` prefers the node where the chosen GPU keeps the least free, then the
node with the least free: small requests go where they fit tightly, and whole GPUs stay whole. `spread` is the opposite.
Policies that give points are ranked by `scored`, others by what a pod leaves behind. Of equal nodes the first by name
is the best.

For each sort of request the nodes are kept in the order of the policy (`core/order`). A call looks at those that have
changed since, then walks from the best until a node is offered. Two sorts of call still look at every node: `random`,
which has no order, and points of nodes, which each pod has of its own.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple, cast

from gpushare.core.facts.model import PodFacts, Request, Role
from gpushare.core.facts.packing import chance
from gpushare.core.facts.packing.model import Ask, Scorer, View
from gpushare.core.facts.policies import DEFAULT, IMPOSSIBLE, POLICIES
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.ledger.answers import PICTURES
from gpushare.core.ledger.index import SUM_BITS, Order
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.order import offer as offers
from gpushare.core.order.offer import Offer
from gpushare.core.order.ranked import Ranked
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room
from gpushare.core.scheduling import scored
from gpushare.core.steps import Steps

BEST = 10  # kube-scheduler's largest extender score, and how many nodes are worth naming: the others count 0
RANKS_PART = 4  # one part in so many of a call is for ranking
MISSES = 64  # nodes of an order that are not offered, before the offered are looked at instead, if they are fewer
FEWER = 4  # so many times fewer
OTHERS = 64  # nodes that changed and are looked at although they may not be offered: a later call finds it done
AT_ONCE = 128  # nodes that are asked whether they have room: of thousands the budget does not reach all
RELEARNED, STEP = 32, 16  # orders that are worked out before policies learn; nodes looked at in one step of that
LIKELY = 96  # nodes that pods like it prefer, looked at for a pod to which too many are open
GPUS = 8  # that a node has, about
PACKING_LOOKS = 5  # what it costs to work out what is left behind, for each GPU
LACKS = 1 << 61  # the key of a node whose CPU or memory is too small, as far as we know: it is the last to be taken

Row = tuple[int, str]  # the key of a node, the smaller the better, and its name


class Example(NamedTuple):
    """A request that has a kept order: to work the order out again without waiting for the next one."""

    request: Request | None
    pod: PodFacts
    policy: str


class Sort(NamedTuple):
    """Requests that have one kept order."""

    what: Hashable  # equal for requests that share the order
    by: object  # what all keys depend on besides the nodes: if that is another, all are worked out again
    key: Callable[[str, Budget], int | None]  # of a node that has room; None: no place there, or no budget left
    by_pod: bool = True  # where something is promised the key depends on the pod
    packs: bool = False  # by what is left behind: that is about the same for pods that ask about the same


def best(
    ledger: Ledger,
    request: Request,
    pod: PodFacts,
    offered: Offer | Sequence[str],
    policy: str,
    budget: Budget | None = None,
    node_points: NodePoints | None = None,
) -> list[tuple[str, int]]:
    """The best of the offered nodes that fit with their scores, the best first.

    Exactly one node gets the top score: the pod will be assumed there, and a tie would let
    kube-scheduler choose another. After it, equal nodes get equal scores.
    """
    budget = budget or Budget(cost.UNHURRIED_LOOKS)
    order = list(islice(_walk(ledger, request, pod, offers.of(offered), policy, budget, node_points), BEST))
    scores, rank, before = [], BEST, None
    if _takes_second(ledger, policy):
        order[:2] = reversed(order[:2])
    for position, (key, node) in enumerate(order):
        if position == 1 or (position > 1 and key != before):
            rank -= 1
        scores.append((node, rank))
        before = key
    return scores


def first(
    ledger: Ledger,
    request: Request | None,
    pod: PodFacts,
    offered: Offer | Sequence[str],
    policy: str,
    budget: Budget | None = None,
    node_points: NodePoints | None = None,
) -> str | None:
    """The node that `best` would name first, or None. Policies that pack have a say in pods without GPUs, too: these
    have no request."""
    budget = budget or Budget(cost.UNHURRIED_LOOKS)
    walk = _walk(ledger, request, pod, offers.of(offered), policy, budget, node_points)
    found = next(walk, None)
    if found is not None and _takes_second(ledger, policy):
        found = next(walk, found)
    return found[1] if found is not None else None


def _takes_second(ledger: Ledger, policy: str) -> bool:
    """Whether an admin wants the node after the best."""
    return ledger.scoring.settings.second_best and POLICIES[policy].score is not None


def _walk(
    ledger: Ledger,
    request: Request | None,
    pod: PodFacts,
    offer: Offer,
    policy: str,
    budget: Budget,
    node_points: NodePoints | None,
) -> Iterator[Row]:
    """The offered nodes that can take the pod, the best first."""
    if pod.only_node:
        offer = Offer([pod.only_node] if pod.only_node in offer else [])
    if POLICIES[policy].by_chance:
        return _by_chance(ledger, request, pod, offer, budget)
    sort, scorer, score = None, ledger.scorer(policy), POLICIES[policy].score
    if scorer is not None:
        sort = _packing(ledger, request, pod, policy, scorer)
    assert request is not None or sort is not None
    if request is not None and score is not None:
        if pod.needs is not None and node_points is not None:  # each pod has points of its own
            return iter(_by_node_points(ledger, request, pod, offer, policy, budget, node_points))
        sort = Sort((policy, request.shape), ledger.scoring, scored.key(ledger, request, pod, policy, budget))
    if request is not None and sort is None:
        if request.one_share and request.shares[0].role is Role.APP:
            order = ledger.gpu_order(request, emptiest_first=POLICIES[policy].emptiest_first)
            return _willing(ledger, request, pod, _offered(order, offer, ()), budget)
        sort = _by_memory(ledger, request, pod, policy, budget)
    assert sort is not None
    order = _looked_at(ledger, request, pod, offer, policy, sort, budget)
    apart = ledger.promised() if sort.by_pod else ()
    rows = _willing(ledger, request, pod, _offered(order, offer, apart), budget)
    if not apart or request is None:
        return rows
    return merge(rows, sorted(_promised(ledger, request, pod, offer, sort, budget)))


def _offered(order: Order, offer: Offer, apart: Collection[str]) -> Iterator[Row]:
    """Those of an order that are offered. Where most of the first are not, the offered are looked at instead."""
    passed, misses = set(apart), 0
    for row in order.rows:
        node = row[1]
        if node in passed:
            continue
        passed.add(node)
        if node in offer:
            yield row
            continue
        misses += 1
        few = offer.few(order.nodes // FEWER) if misses == MISSES else None
        if few is not None:
            rest = [(order.key(node), node) for node in set(few) - passed]
            yield from sorted([(key, node) for key, node in rest if key is not None])
            return


def _willing(
    ledger: Ledger, request: Request | None, pod: PodFacts, rows: Iterator[Row], budget: Budget
) -> Iterator[Row]:
    """Without the nodes that have room and refuse the pod all the same."""
    special = ledger.special()
    if request is None or not special:
        return rows
    return (row for row in rows if row[1] not in special or not ledger.refuses(request, pod, row[1], budget))


def _promised(
    ledger: Ledger, request: Request, pod: PodFacts, offer: Offer, sort: Sort, budget: Budget
) -> Iterator[Row]:
    """Nodes where something is promised, with their keys for this pod."""
    for node in ledger.promised():
        if budget.left > 0 and node in offer and not ledger.refuses(request, pod, node, budget):
            key = sort.key(node, budget)
            if key is not None:
                yield key, node


def _looked_at(
    ledger: Ledger, request: Request | None, pod: PodFacts, offer: Offer, policy: str, sort: Sort, budget: Budget
) -> Order:
    """The kept order, up to date as far as the budget goes. A part of it is left for keys: the best of some is better
    than any of them, and only a pod whose node is known is assumed."""
    ranked = ledger.ranked(pod.namespace, sort.what, sort.by)
    if ranked.example is None:
        ranked.example = Example(request, pod, policy)
    if ranked.open:
        nodes = list(ranked.open)
        if len(nodes) > OTHERS:
            offered = offer.of_these(nodes)
            likely = _likely(ledger, pod, sort, ranked, offered) if sort.packs and _too_many(offered, budget) else []
            _look_at(ledger, request, pod, ranked, likely, sort, budget)
            unlikely = [] if likely and len(ranked) else [node for node in offered if node in ranked.open]
            nodes = unlikely + list(ranked.open.keys() - offered)[:OTHERS]
        _look_at(ledger, request, pod, ranked, nodes, sort, budget)
    return Order(ranked.rows(), ranked.key, len(ranked))


def _likely(ledger: Ledger, pod: PodFacts, sort: Sort, ranked: Ranked, nodes: list[str]) -> list[str]:
    """Of many nodes that are open those that pods like it prefer: a good place is among them, and the next pod of its
    sort looks at more. None, if no pods like it came."""
    kept = [order for _, _, order in ledger.orders([sort.by])[:RELEARNED] if len(order) and order is not ranked]
    if not kept:
        return []
    ask, named = Ask.of(pod), set(nodes)
    like = min(kept, key=lambda order: _unlike(ask, Ask.of(cast(Example, order.example).pod)))
    return list(islice((node for _, node in like.rows() if node in named), LIKELY))


def _too_many(nodes: Sequence[str], budget: Budget) -> bool:
    """Whether to look at all of them, for what they leave behind, would use up half of the budget."""
    return 2 * len(nodes) * PACKING_LOOKS * GPUS > budget.left


def _unlike(one: Ask, other: Ask) -> tuple[int, int, int, int]:
    """How much two sorts of pods differ: in what GPUs they take, then in all else."""
    return (
        abs(one.gpus - other.gpus),
        abs(one.units - other.units),
        abs(one.cpu - other.cpu),
        abs(one.memory - other.memory),
    )


def _by_chance(ledger: Ledger, request: Request | None, pod: PodFacts, offer: Offer, budget: Budget) -> Iterator[Row]:
    names = list(ledger.node_names())
    fits = ledger.fitting(request, pod, names, budget) if request is not None else names
    return enumerate(node for node in chance.shuffled(pod.uid, fits) if node in offer)


def _look_at(
    ledger: Ledger,
    request: Request | None,
    pod: PodFacts,
    ranked: Ranked,
    nodes: Sequence[str],
    sort: Sort,
    budget: Budget,
) -> None:
    keys: dict[str, int | None] = {}
    looked_up = request is None or request.one_share  # others have to be asked all together, the emptiest first
    step = AT_ONCE if looked_up else max(len(nodes), 1)
    for start in range(0, len(nodes), step):
        if budget.left <= 0:
            break
        for_keys = budget.left // RANKS_PART
        budget.left -= for_keys
        has_room = ledger.rooms_for(request, pod.namespace, nodes[start : start + step], budget)
        budget.left += for_keys
        for node, there in has_room.items():
            key = sort.key(node, budget) if there and budget.left > 0 else None
            if key is not None or not there or budget.left > 0:
                keys[node] = key
    ranked.put(keys)


def relearning(ledger: Ledger, scorers: Mapping[str, Scorer]) -> Steps[list[tuple[str, Hashable, Ranked]]]:
    """Before policies that pack learn: the orders that were asked for last, worked out anew in short steps. Until
    `learn` has them, the ledger goes by the old ones."""
    fresh = []
    for namespace, what, old in ledger.orders(list(ledger.scorers.values()))[:RELEARNED]:
        example = cast(Example, old.example)
        scorer = scorers.get(example.policy)
        if scorer is None or scorer is old.by:
            continue
        sort = _packing(ledger, example.request, example.pod, example.policy, scorer)
        ranked = ledger.renewed(Ranked(), scorer)
        ranked.example = example
        names = list(ranked.open)
        for start in range(0, len(names), STEP):
            nodes = [name for name in names[start : start + STEP] if name in ledger.node_names()]
            _look_at(ledger, example.request, example.pod, ranked, nodes, sort, Budget(cost.CALL_LOOKS))
            yield
        fresh.append((namespace, what, ranked))
    return fresh


def _by_node_points(
    ledger: Ledger,
    request: Request,
    pod: PodFacts,
    offer: Offer,
    policy: str,
    budget: Budget,
    node_points: NodePoints,
) -> list[Row]:
    for_ranks = max(budget.left, 0) // RANKS_PART
    budget.left -= for_ranks
    fits = ledger.fitting(request, pod, list(dict.fromkeys(offer.names)), budget)
    budget.left += for_ranks
    keys = scored.keys(ledger, request, pod, fits, policy, budget, node_points)
    return sorted([(key, node) for key, node in zip(keys, fits, strict=True) if key != IMPOSSIBLE])


def _by_memory(ledger: Ledger, request: Request, pod: PodFacts, policy: str, budget: Budget) -> Sort:
    """What the chosen GPUs keep free together, and the node."""
    answers = ledger.answers(request, pod.namespace, (), budget)
    known = answers.pictured_ranks.setdefault(policy, {})

    def key(node: str, budget: Budget) -> int | None:
        state = ledger.node(node)
        if state is None or state.room is None:
            return None
        picture = state.room.picture
        if picture not in known:
            rank = _planned_rank(answers.question, state.room, policy, budget)
            if rank is None and budget.left <= 0:
                return None  # not known yet
            if len(known) >= PICTURES:
                known.clear()
            known[picture] = rank
        budget.left -= 1
        return known[picture]

    return Sort((policy, request.shape), None, key, by_pod=False)


def _planned_rank(question: Question, room: Room, policy: str, budget: Budget) -> int | None:
    left = question.left_after(room, policy, budget)
    if left is None:
        return None
    rank = (left << SUM_BITS) + room.sum_free
    return -rank if POLICIES[policy].emptiest_first else rank


def _packing(ledger: Ledger, request: Request | None, pod: PodFacts, policy: str, scorer: Scorer) -> Sort:
    """What the pod would leave behind there."""
    ask, cpu, memory = Ask.of(pod), pod.cpu, pod.memory
    one_gpu = request is not None and request.one_gpu and not request.shares[0].kind.slots
    known: dict[View, int | None] = {}  # nodes that are alike share a view
    # A view does not show all that a plan for several containers depends on.
    alike = request is None or one_gpu or (len(request.shares) == 1 and not request.shares[0].kind.slots)

    def key(node: str, budget: Budget) -> int | None:
        view = ledger.view(node, pod)
        if view is None:
            return None
        if view.cpu < cpu or view.memory < memory:
            budget.left -= 1
            return LACKS
        if view in known:
            budget.left -= 1
            return known[view]
        budget.left -= PACKING_LOOKS * (1 + len(view.free))
        if one_gpu:
            choice = scorer.one_gpu(ask, view)
            found = None if choice is None else choice.key
        else:
            free = _left_behind(ledger, request, pod, node, view, budget)
            found = None if free is None else scorer.planned(ask, view, free)
        if alike:
            known[view] = found
        return found

    what = policy, request.shape if request is not None else None, ask.cpu, ask.memory
    return Sort(what, scorer, key, packs=True)


def _left_behind(
    ledger: Ledger, request: Request | None, pod: PodFacts, node: str, view: View, budget: Budget
) -> Sequence[int] | None:
    """By GPU what stays free."""
    if request is None:
        return view.free
    state = ledger.node(node)
    room = state.room_for(pod) if state is not None else None
    places = gpu_choice.plan(request, room, DEFAULT, budget) if room is not None else None
    if room is None or places is None:
        return None
    free = list(view.free)
    for charge in gpu_choice.charges(request.shares, room.facts, places):
        free[charge.gpu] -= charge.units
    return free
