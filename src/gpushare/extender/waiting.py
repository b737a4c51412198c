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

Taken = dict[str, list[int]]  # by node and GPU: units offered to pods that have not come yet

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
        """A node is held for it, or it is bound or deleted: nothing to wake. Where it was woken for, more or less than
        was thought may be left to others: it may have gone elsewhere, or to another GPU."""
        entry = self.refused.pop(uid, None)
        if entry is not None and entry.offered:
            self._again.add(entry.offered)

    def failed_to_wake(self, uid: str) -> None:
        """The touch did not get through: it has to be tried again."""
        entry = self.refused.get(uid)
        if entry is not None and entry.offered:
            self._again.add(entry.offered)
            entry.offered = ""

    def due(self, ledger: Ledger, now: float) -> list[PodFacts]:
        """Whom to wake now. Looks only at nodes where something came free, or where an offer was declined."""
        for uid, entry in list(self.refused.items()):
            if entry.offered and now - entry.woken > PATIENCE:
                self._decline(entry)
                del self.refused[uid]  # woken once for that refusal; the next one brings it back
        for node in ledger.grown:
            self._declined.pop(node, None)
        nodes = ledger.grown | self._again
        ledger.grown, self._again = set(), set()
        candidates = [entry for entry in self.refused.values() if not entry.offered]
        if not nodes or not candidates:
            return []
        candidates.sort(key=lambda entry: (-entry.pod.priority, entry.pod.created, entry.pod.uid))
        return [entry.pod for entry in self._offer(ledger, nodes, candidates, now)]

    def _offer(self, ledger: Ledger, grown: set[str], candidates: Iterable[Refused], now: float) -> Iterable[Refused]:
        nodes, taken = sorted(grown), self._offered(ledger, grown)
        hopeless: set[tuple[Shape, int]] = set()  # free memory only shrinks from here on
        for entry in candidates:
            claim, pod = entry.pod.claim, entry.pod
            if not isinstance(claim, Request):
                continue
            kind = (claim.shape, pod.priority)
            if kind in hopeless and pod.uid not in ledger.pledged and pod.uid not in ledger.kept:  # which its like lack
                continue
            node = self._first_fit(ledger, nodes, pod, claim, taken)
            if node:
                entry.offered, entry.woken = node, now
                yield entry
            elif not any(pod.uid in self._declined.get(name, ()) for name in nodes):
                hopeless.add(kind)

    def _offered(self, ledger: Ledger, nodes: set[str]) -> Taken:
        """What pods woken earlier have not come for yet: not to be offered a second time."""
        taken: Taken = {}
        for entry in self.refused.values():
            if entry.offered in nodes and isinstance(entry.pod.claim, Request):
                _take(ledger, entry.offered, entry.pod, Question(entry.pod.claim), taken)
        return taken

    def _first_fit(self, ledger: Ledger, nodes: list[str], pod: PodFacts, claim: Request, taken: Taken) -> str:
        question = Question(claim)
        for node in nodes:
            if pod.uid in self._declined.get(node, ()) or ledger.refusal(question, node, pod) is not None:
                continue
            if _take(ledger, node, pod, question, taken):
                return node
        return ""

    def _decline(self, entry: Refused) -> None:
        self._declined.setdefault(entry.offered, set()).add(entry.pod.uid)
        self._again.add(entry.offered)
        entry.offered = ""


def _take(ledger: Ledger, node: str, pod: PodFacts, question: Question, taken: Taken) -> bool:
    """Whether a pod fits a node beside those that were woken for it. If so, it is counted with them."""
    state = ledger.nodes.get(node)
    room = state.room_for(pod) if state is not None else None
    if room is None:
        return False
    extra = taken.setdefault(node, [0] * len(room.free))
    used = [gpu.total - free + more for gpu, free, more in zip(room.facts.gpus, room.free, extra, strict=True)]
    rest = Room.of(room.facts, used)
    places = choose.plan(question.request, rest, choose.BINPACK) if question.refusal(rest) is None else None
    if places is None:
        return False
    if ledger.pledged.get(pod.uid) != node:  # a pledge counts against the others as it is
        for gpu, amount in choose.charges(question.request.shares, room.facts.gpus, places):
            extra[gpu] += amount
    return True
