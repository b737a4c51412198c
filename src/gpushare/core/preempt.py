"""Which pods must go from a node so that a GPU, and not only a total, comes free.

Pure. kube-scheduler has chosen victims by totals; some may be needed for CPU or ports, so none is spared. What it
chose is kept, and as few as possible of lower priority are added until a plan exists. Called by the preempt verb.
"""

from collections.abc import Collection

from gpushare.core import choose
from gpushare.core.book import NodeState, State
from gpushare.core.fit import Question
from gpushare.core.model import PodFacts, Request


def victims(state: NodeState, pod: PodFacts, chosen: Collection[str]) -> list[str] | None:
    """The uids to add to those already chosen, or None if nothing that may be evicted makes room."""
    gone = {uid for uid in chosen if uid in state.holdings}
    if would_fit(state, pod, gone):
        return []
    lower = [
        holding
        for uid, holding in state.holdings.items()
        if uid not in gone and holding.state is State.BOUND and holding.pod.priority < pod.priority
    ]
    # The least important first and, among equals, the largest: fewer have to go.
    lower.sort(key=lambda h: (h.pod.priority, -sum(units for _, units in h.charges or ()), h.pod.uid))
    added: list[str] = []
    for holding in lower:
        added.append(holding.pod.uid)
        if would_fit(state, pod, gone.union(added)):
            return _spared(state, pod, gone, added)
    return None


def _spared(state: NodeState, pod: PodFacts, gone: set[str], added: list[str]) -> list[str]:
    """Let off whoever turns out not to be needed, the most important first."""
    needed = list(added)
    for uid in reversed(added):
        without = [other for other in needed if other != uid]
        if would_fit(state, pod, gone.union(without)):
            needed = without
    return needed


def would_fit(state: NodeState, pod: PodFacts, gone: Collection[str]) -> bool:
    """Whether the pod had room if these were gone, and others that wait for their room before it had theirs."""
    request, facts = pod.claim, state.facts
    if facts is None or not isinstance(request, Request) or Question(request).off_limits(facts) is not None:
        return False
    room = state.room_for(pod, gone)
    return room is not None and choose.plan(request, room, choose.BINPACK) is not None
