"""The best node found the slow and simple way: every offered node is asked, and nothing is kept from call to call.

What `ranking` answers out of its kept orders must be equal to this.
"""

from collections.abc import Iterable, Sequence

from gpushare.core.facts.model import Gpu, PodFacts, Request, Role
from gpushare.core.facts.packing.model import Ask, View
from gpushare.core.facts.policies import DEFAULT, IMPOSSIBLE, POLICIES
from gpushare.core.ledger.holding import Holding
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.scheduling import ranking, scored

SUM_BITS = 32


def rows(ledger: Ledger, pod: PodFacts, offered: Iterable[str], policy: str) -> list[tuple[int, str]]:
    """Keys and names of all that fit, the best first."""
    assert isinstance(pod.request, Request)
    question = Question(pod.request)
    fits = [
        node
        for node in set(offered)
        if ledger.refusal(question, node, pod, Budget(cost.UNHURRIED_LOOKS)) is None
    ]  # fmt: skip
    keys = [(_key(ledger, question, pod, node, policy), node) for node in fits]
    return sorted([(key, node) for key, node in keys if key is not None])


def best(ledger: Ledger, pod: PodFacts, offered: Iterable[str], policy: str) -> list[tuple[str, int]]:
    """With scores: one at the top, then equal ones for equal keys."""
    found = rows(ledger, pod, offered, policy)[: ranking.BEST]
    if POLICIES[policy].score is not None and ledger.scoring.settings.second_best:
        found[:2] = reversed(found[:2])
    scores, points = [], ranking.BEST
    for i, (key, node) in enumerate(found):
        points -= i == 1 or (i > 1 and key != found[i - 1][0])
        scores.append((node, points))
    return scores


def _key(ledger: Ledger, question: Question, pod: PodFacts, node: str, policy: str) -> int | None:
    if ledger.scorer(policy) is not None:
        return _packed(ledger, question.request, pod, node, policy)
    if POLICIES[policy].score is not None:
        anew = Budget(cost.UNHURRIED_LOOKS)
        (key,) = scored.keys(ledger, question.request, pod, [node], policy, anew, None)
        return None if key == IMPOSSIBLE else key
    return _by_memory(ledger, question, node, policy)


def _by_memory(ledger: Ledger, question: Question, node: str, policy: str) -> int | None:
    """What the chosen GPUs keep, then the node; one share counts before it is taken off."""
    state, emptiest_first = ledger.node(node), POLICIES[policy].emptiest_first
    assert state is not None
    room, share = state.room, question.request.shares[0]
    assert room is not None
    left: int | None
    if question.request.one_share and share.role is Role.APP:
        able = [free for free in room.rising if free >= share.units]
        left = (max(able) if emptiest_first else min(able)) if able else None
    else:
        left = question.left_after(room, policy, Budget(cost.UNHURRIED_LOOKS))
    if left is None:
        return None
    key = (left << SUM_BITS) + room.sum_free
    return -key if emptiest_first else key


def _packed(ledger: Ledger, request: Request, pod: PodFacts, node: str, policy: str) -> int | None:
    state, scorer, ask = ledger.node(node), ledger.scorer(policy), Ask.of(pod)
    room = state.room_for(pod) if state is not None else None
    assert state is not None
    assert scorer is not None
    assert room is not None
    gpus = room.facts.gpus
    free = [units if gpu.healthy else 0 for gpu, units in zip(gpus, room.free, strict=True)]
    cpu, memory = ledger.supplies.left(node)
    held = frozenset([_held(holding, gpus) for holding in ledger.holdings() if holding.node == node])
    view = View(free, [gpu.total for gpu in gpus], [gpu.model for gpu in gpus], cpu, memory, room.empty, held)
    if request.one_gpu and not request.shares[0].kind.slots:
        choice = scorer.one_gpu(ask, view)
        key = None if choice is None else choice.key
    else:
        places = gpu_choice.plan(request, room, DEFAULT)
        if places is None:
            return None
        for charge in gpu_choice.charges(request.shares, room.facts, places):
            free[charge.gpu] -= charge.units
        key = scorer.planned(ask, view, free)
    return ranking.LACKS if key is not None and (cpu < ask.cpu or memory < ask.memory) else key


def _held(holding: Holding, gpus: Sequence[Gpu]) -> int:
    """GPUs that a pod has; 0: a part of one, or nobody knows which."""
    charges = holding.charges or ()
    wholly = [charge.units >= gpus[charge.gpu].total for charge in charges]
    return 0 if wholly == [False] else len(charges)
