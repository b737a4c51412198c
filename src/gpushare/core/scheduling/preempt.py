"""Which pods must go from a node so that a GPU, and not only a total, comes free.

Pure. kube-scheduler has chosen victims by totals. Some may have to go for CPU or ports, so all of them stay chosen. As
few pods of lower priority as possible are added until the pod fits.
"""

from bisect import bisect_left
from collections.abc import Collection

from gpushare.core.facts import policies
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.ledger.holding import State
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question


def victims(state: NodeState, pod: PodFacts, chosen: Collection[str], budget: Budget | None = None) -> list[str] | None:
    """The uids to add to those already chosen, or None if nothing that may be evicted makes room."""
    budget = budget or Budget(cost.UNHURRIED_LOOKS)
    gone = {uid for uid in chosen if state.holding(uid) is not None}
    if would_fit(state, pod, gone, budget):
        return []
    lower = [
        holding
        for holding in state.holdings()
        if holding.pod.uid not in gone and holding.state is State.BOUND and holding.pod.priority < pod.priority
    ]
    # The least important first and, among equals, the largest: fewer have to go.
    lower.sort(key=lambda h: (h.pod.priority, -sum(charge.units for charge in h.charges or ()), h.pod.uid))
    uids = [holding.pod.uid for holding in lower]
    if not uids or not would_fit(state, pod, gone.union(uids), budget):
        return None
    # The more go, the more is free: the shortest list that is enough is found by halving.
    enough = bisect_left(
        range(1, len(uids)), True, key=lambda count: would_fit(state, pod, gone.union(uids[:count]), budget)
    )
    return _spared(state, pod, gone, uids[: enough + 1], budget)


def _spared(state: NodeState, pod: PodFacts, gone: set[str], added: list[str], budget: Budget) -> list[str]:
    """Without those that turn out not to be needed, the most important first."""
    needed = list(added)
    for uid in reversed(added):
        without = [other for other in needed if other != uid]
        if would_fit(state, pod, gone.union(without), budget):
            needed = without
    return needed


def would_fit(state: NodeState, pod: PodFacts, gone: Collection[str], budget: Budget) -> bool:
    """Whether the pod would fit if these pods were gone, and pods ahead of it had their room. If the budget is used up,
    the answer is no."""
    request, facts = pod.request, state.facts
    if facts is None or not isinstance(request, Request) or Question(request).off_limits(facts) is not None:
        return False
    if budget.left <= 0:
        return False
    budget.left -= len(facts.gpus) + len(gone)
    room = state.room_for(pod, gone)
    return room is not None and gpu_choice.plan(request, room, policies.DEFAULT, budget) is not None
