"""Pods that were refused, and whom to wake when memory comes free.

kube-scheduler asks again about a refused pod only when something it sees has changed, and it may ask a moment before
we have seen memory come free; a hold that ends it never sees at all. So whenever a node's free memory grows, those
that now fit are touched, which makes the scheduler ask: by priority, then age, only as many as fit together, each
once per refusal. A woken pod that does not come (another rule keeps it off the node) passes the offer on.
Pure but for what it remembers; `app` sends the touches.
"""

from collections.abc import Iterable

from gpushare.core import choose
from gpushare.core.choose import Room
from gpushare.core.fit import Question
from gpushare.core.ledger import Ledger
from gpushare.core.model import PodFacts, Request, Shape

PATIENCE = 12.0  # seconds in which a woken pod should have been asked about: schedulers back off up to 10


class Refused:
    """One refused pod. `offered`: the node it was woken for, since `woken`."""

    __slots__ = ("offered", "pod", "woken")

    def __init__(self, pod: PodFacts) -> None:
        self.pod = pod
        self.offered = ""
        self.woken = 0.0


class Waiting:
    def __init__(self) -> None:
        self.refused: dict[str, Refused] = {}
        self._declined: dict[str, set[str]] = {}  # by node: pods that were woken for it and did not come
        self._again: set[str] = set()  # nodes whose offer was declined

    def refuse(self, pod: PodFacts) -> None:
        """The scheduler was told that no node fits. If the pod had been woken, its offer goes to the next."""
        before = self.refused.get(pod.uid)
        if before is not None and before.offered:
            self._decline(before)
        self.refused[pod.uid] = Refused(pod)

    def gone(self, uid: str) -> None:
        """It fits somewhere now, is bound or deleted: nothing to wake."""
        entry = self.refused.pop(uid, None)
        if entry is not None and entry.offered:
            self._again.add(entry.offered)

    def accept(self, uid: str) -> None:
        """It was told where it fits; what it was woken for is its own now."""
        self.refused.pop(uid, None)

    def failed_to_wake(self, uid: str) -> None:
        """The touch did not get through: it has to be tried again."""
        entry = self.refused.get(uid)
        if entry is not None and entry.offered:
            self._again.add(entry.offered)
            entry.offered = ""

    def due(self, ledger: Ledger, now: float) -> list[PodFacts]:
        """Whom to wake now. Looks only at nodes where something came free, or where an offer was declined."""
        for entry in self.refused.values():
            if entry.offered and now - entry.woken > PATIENCE:
                self._decline(entry)
        for node in ledger.grown:
            self._declined.pop(node, None)
        nodes = ledger.grown | self._again
        ledger.grown, self._again = set(), set()
        candidates = [entry for entry in self.refused.values() if not entry.offered]
        if not nodes or not candidates:
            return []
        candidates.sort(key=lambda entry: (-entry.pod.priority, entry.pod.created, entry.pod.uid))
        return [entry.pod for entry in self._offer(ledger, sorted(nodes), candidates, now)]

    def _offer(self, ledger: Ledger, nodes: list[str], candidates: Iterable[Refused], now: float) -> Iterable[Refused]:
        taken: dict[str, list[int]] = {}  # units given to those already woken in this round
        hopeless: set[tuple[Shape, int]] = set()  # free memory only shrinks from here on
        for entry in candidates:
            claim = entry.pod.claim
            if not isinstance(claim, Request) or (claim.shape, entry.pod.priority) in hopeless:
                continue
            node = self._first_fit(ledger, nodes, entry.pod, claim, taken)
            if node:
                entry.offered, entry.woken = node, now
                yield entry
            elif not any(entry.pod.uid in self._declined.get(name, ()) for name in nodes):
                hopeless.add((claim.shape, entry.pod.priority))

    def _first_fit(
        self, ledger: Ledger, nodes: list[str], pod: PodFacts, claim: Request, taken: dict[str, list[int]]
    ) -> str:
        question = Question(claim)
        for node in nodes:
            if pod.uid in self._declined.get(node, ()) or ledger.refusal(question, node, pod) is not None:
                continue
            room = ledger.nodes[node].room_for(pod)
            if room is None:
                continue
            extra = taken.setdefault(node, [0] * len(room.free))
            used = [gpu.total - free + more for gpu, free, more in zip(room.facts.gpus, room.free, extra, strict=True)]
            rest = Room.of(room.facts, used)
            places = choose.plan(claim, rest, choose.BINPACK) if question.refusal(rest) is None else None
            if places is not None:
                for gpu, amount in choose.charges(claim.shares, room.facts.gpus, places):
                    extra[gpu] += amount
                return node
        return ""

    def _decline(self, entry: Refused) -> None:
        self._declined.setdefault(entry.offered, set()).add(entry.pod.uid)
        self._again.add(entry.offered)
        entry.offered = ""
