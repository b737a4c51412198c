"""Pods that were refused, and whom to wake when memory comes free.

kube-scheduler asks again about a refused pod only when something it sees has changed. It may ask a moment before we
have seen memory come free, and it never sees that an assumption ends. So whenever a node's free memory grows, the pods
that now fit are touched, which makes the scheduler ask: by priority, then age, only as many as fit together, each once
per refusal (`wake_round`). Pods that may not go to the node are passed over. Pods that the scheduler did not offer that
node last time come after the others, and take nothing from them. A woken pod that does not come within a second passes
the offer on.

Pure but for what it remembers.

What happens next: `extender/housekeeping.py` writes `gpushare.io/woken` on each pod that is due; then kube-scheduler
asks again.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence

from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import Budget
from gpushare.core.scheduling.reach import ANYWHERE
from gpushare.core.scheduling.wake_round import NOT_YET, OpenTo, Refused, Round, Turn

OFFER_SECONDS = 1.0  # in which a woken pod should have been asked about; later its offer counts for others, too
TURN_LOOKS = 20_000  # GPUs looked at in one call: about 5 ms
OFFERS_KEPT = 64  # different lists of nodes that schedulers offered


class WakeUps:
    def __init__(self, open_to: OpenTo = ANYWHERE.open_to) -> None:
        self._open_to = open_to
        self._refused: dict[str, Refused] = {}
        self._order: list[Turn] = []  # of those that have not been woken
        self._offers: dict[str, Refused] = {}  # those that were, and have not come yet
        self._declined: dict[str, set[str]] = {}  # by node: pods that were woken for it and did not come
        self._again: set[str] = set()  # nodes whose offer was declined
        self._everywhere = False  # whether to look at all nodes again
        self._round: Round | None = None
        self._names: dict[frozenset[str], frozenset[str]] = {}

    def __contains__(self, uid: str) -> bool:
        """Whether a pod is remembered as refused."""
        return uid in self._refused

    def __len__(self) -> int:
        return len(self._refused)

    def refused(self) -> list[PodFacts]:
        return [entry.pod for entry in self._refused.values()]

    def refuse(self, pod: PodFacts, names: Sequence[str] | None = None) -> None:
        """The scheduler was told that none of these nodes fits. If the pod had been woken, its offer goes on."""
        self._decline(pod.uid)
        self._forget(pod.uid)
        if isinstance(pod.request, Request):
            entry = self._refused[pod.uid] = Refused(pod, pod.request, self._kept(names))
            insort(self._order, entry.turn)

    def gone(self, uid: str) -> None:
        """A node is assumed for it, or it is bound or deleted: nothing to wake. The node it was woken for is looked at
        again: the pod may have gone elsewhere, or to another GPU."""
        entry = self._offers.get(uid)
        if entry is not None:
            self._again.add(entry.offered)
        for declined in self._declined.values():
            declined.discard(uid)
        self._forget(uid)

    def touched(self, uid: str, now: float) -> None:
        """The touch got through. From now on the pod is expected."""
        if uid in self._offers:
            self._offers[uid].woken = now

    def failed_to_wake(self, uid: str) -> None:
        """The touch did not get through: it has to be tried again."""
        entry = self._offers.pop(uid, None)
        if entry is not None:
            self._everywhere = True  # something may have come free elsewhere meanwhile
            entry.offered = ""
            insort(self._order, entry.turn)

    def due(self, ledger: Ledger, now: float, budget: Budget | None = None) -> list[PodFacts]:
        """Whom to wake now. Looks only at nodes where something came free, or where an offer was declined."""
        for uid in [uid for uid, entry in self._offers.items() if now - entry.woken > OFFER_SECONDS]:
            self._decline(uid)
            self._forget(uid)  # woken once for that refusal; the next one brings it back
        if self._round is None:
            self._round = self._next_round(ledger)
        if self._round is None:
            return []
        woken = []
        budget = budget or Budget(TURN_LOOKS)
        for entry, node in self._round.go_on(ledger, self._order, self._refused, self._declined, budget):
            entry.offered, entry.woken = node, NOT_YET
            self._offers[entry.pod.uid] = entry
            woken.append(entry)
        if self._round.is_over:
            self._round = None
        for entry in woken:
            del self._order[bisect_right(self._order, entry.turn) - 1]
        return [entry.pod for entry in woken]

    def _next_round(self, ledger: Ledger) -> Round | None:
        grown, names = ledger.take_grown(), ledger.node_names()
        for node in grown:
            self._declined.pop(node, None)
        if len(self._declined) > len(names):
            self._declined = {node: uids for node, uids in self._declined.items() if uids and node in names}
        nodes = set(names) if self._everywhere else grown | self._again
        self._again, self._everywhere = set(), False
        if not nodes or not self._order:
            return None
        states = [state for node in nodes if (state := ledger.node(node)) is not None]
        rooms = {state.name: state.room for state in states if state.room is not None}
        return Round(rooms, self._open_to, self._offers.values())

    def _kept(self, names: Sequence[str] | None) -> frozenset[str] | None:
        """The nodes a scheduler offered, the same list kept once. The oldest of too many is forgotten by all."""
        if names is None:
            return None
        offered = frozenset(names)
        if offered not in self._names and len(self._names) >= OFFERS_KEPT:
            oldest = next(iter(self._names))
            del self._names[oldest]
            for entry in self._refused.values():
                if entry.names is oldest:
                    entry.names = None
        return self._names.setdefault(offered, offered)

    def _decline(self, uid: str) -> None:
        entry = self._offers.get(uid)
        if entry is not None:
            self._declined.setdefault(entry.offered, set()).add(uid)
            self._again.add(entry.offered)

    def _forget(self, uid: str) -> None:
        entry = self._refused.pop(uid, None)
        if entry is None:
            return
        if self._offers.pop(uid, None) is None:
            del self._order[bisect_right(self._order, entry.turn) - 1]
        if not self._refused:
            self._names.clear()  # nodes come and go; so do the lists of them
