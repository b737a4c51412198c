"""Pods that were refused, and whom to wake when memory comes free.

kube-scheduler asks again about a refused pod only when something it sees has changed, and it may ask a moment before
we have seen memory come free; a hold that ends it never sees at all. So whenever a node's free memory grows, those
that now fit are touched, which makes the scheduler ask: by priority, then age, only as many as fit together, each
once per refusal. Pods that the node is closed to are passed over; those the scheduler did not offer that node last time
come after the others, and an offer to a pod that may never come is not taken from those who surely can. A woken pod
that does not come within a second passes the offer on.

A turn looks at as many pods as its budget allows, and the next turn goes on from there.
Pure but for what it remembers.

What happens next: `extender/app.py` writes `gpushare.io/woken` on each pod that is due, and kube-scheduler asks again.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpushare.core.annotations.pod_gpus import Charges
from gpushare.core.facts import policies
from gpushare.core.facts.model import PodFacts, Request, Role, Rules, Shape
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room

OFFER_SECONDS = 1.0  # in which a woken pod should have been asked about; later its offer counts for others, too
TURN_LOOKS = 20_000  # GPUs looked at in one turn: about 5 ms
CANDIDATE_LOOKS = 2  # what passing over a pod costs, in the same measure
NOT_YET = float("inf")
OFFERS_KEPT = 64  # different lists of nodes that schedulers offered

Kind = tuple[Shape, int, Rules | None, frozenset[str] | None]
Turn = tuple[int, str, str]  # priority, age, uid: in which order pods are woken
OpenTo = Callable[[PodFacts, str], bool]


class Refused:
    """One refused pod. `offered`: the node it is woken for. `woken`: since when its scheduler can know that."""

    __slots__ = ("most", "names", "offered", "pod", "question", "shape", "taken", "total", "turn", "woken")

    def __init__(self, pod: PodFacts, request: Request, names: frozenset[str] | None) -> None:
        self.pod = pod
        self.question = Question(request)
        self.shape = request.shape
        self.turn: Turn = (-pod.priority, pod.created, pod.uid)
        self.most = max(share.each for share in request.shares)  # on one GPU
        self.total = sum(share.units for share in request.shares if share.role is not Role.INIT)
        self.names = names  # the nodes that passed all other checks of the scheduler; None: not known
        self.offered = ""
        self.taken: Charges = ()  # what it would get there
        self.woken = NOT_YET

    @property
    def kind(self) -> Kind:
        """Those for whom the same nodes do."""
        return self.shape, self.pod.priority, self.pod.rules, self.names


class Pass:
    """One look through all waiting pods for some nodes. `done`: whose turn was last."""

    def __init__(self, nodes: Iterable[tuple[int, str]]) -> None:
        # Largest free GPU and name, the emptiest first.
        self.nodes = sorted(nodes, key=lambda node: (-node[0], node[1]))
        # By node and GPU: units offered to pods that have not come yet. Under True only what was offered to pods that
        # the scheduler is known to offer that node: the others may never come, and must not delay those.
        self.taken: dict[bool, dict[str, list[int]]] = {True: {}, False: {}}
        self.left: dict[tuple[str, bool], tuple[Room, Room]] = {}  # what a node has free, and what is not offered yet
        self.hopeless: set[tuple[Kind, bool]] = set()  # and whether late; free memory only shrinks while a pass lasts
        self.late: list[Refused] = []  # some of these nodes were not offered to them last time
        self._unoffered: dict[Kind, bool] = {}
        self.done: Turn | None = None
        self.stopped: tuple[str, int] = ("", 0)  # in the middle of a pod, at which node

    def take(self, node: str, charges: Charges, gpus: int, *, sure: bool) -> None:
        for taken in (self.taken[True], self.taken[False]) if sure else (self.taken[False],):
            extra = taken.get(node)
            if extra is None or len(extra) != gpus:  # the node may have got or lost GPUs since
                extra = taken[node] = [0] * gpus
            for gpu, amount in charges:
                extra[gpu] += amount
        self.left.pop((node, True), None)
        self.left.pop((node, False), None)

    def is_unoffered_some(self, kind: Kind) -> bool:
        """Whether the scheduler did not offer all of these nodes to such pods last time."""
        if kind not in self._unoffered:
            names = kind[-1]
            self._unoffered[kind] = names is not None and any(node not in names for _, node in self.nodes)
        return self._unoffered[kind]


class Waiting:
    def __init__(self, open_to: OpenTo = lambda pod, node: True) -> None:
        self.refused: dict[str, Refused] = {}
        self._open_to = open_to
        self._order: list[Turn] = []  # of those that have not been woken
        self._offers: dict[str, Refused] = {}  # those that were, and have not come yet
        self._declined: dict[str, set[str]] = {}  # by node: pods that were woken for it and did not come
        self._again: set[str] = set()  # nodes whose offer was declined
        self._everywhere = False  # whether to look at all nodes again
        self._pass: Pass | None = None
        self._names: dict[frozenset[str], frozenset[str]] = {}

    def refuse(self, pod: PodFacts, names: Sequence[str] | None = None) -> None:
        """The scheduler was told that none of these nodes fits. If the pod had been woken, its offer goes on."""
        self._decline(pod.uid)
        self._forget(pod.uid)
        if isinstance(pod.request, Request):
            entry = self.refused[pod.uid] = Refused(pod, pod.request, self._kept(names))
            insort(self._order, entry.turn)

    def gone(self, uid: str) -> None:
        """A node is held for it, or it is bound or deleted: nothing to wake. Where it was woken for, more or less than
        was thought may be left to others: it may have gone elsewhere, or to another GPU."""
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
        if self._pass is None:
            self._pass = self._next_pass(ledger)
        if self._pass is None:
            return []
        woken = []
        for entry, node in self._look_through(ledger, self._pass, budget or Budget(TURN_LOOKS)):
            entry.offered, entry.woken = node, NOT_YET
            self._offers[entry.pod.uid] = entry
            woken.append(entry)
        for entry in woken:
            del self._order[bisect_right(self._order, entry.turn) - 1]
        return [entry.pod for entry in woken]

    def _next_pass(self, ledger: Ledger) -> Pass | None:
        grown, names = ledger.take_grown(), ledger.node_names()
        for node in grown:
            self._declined.pop(node, None)
        if len(self._declined) > len(names):
            self._declined = {node: uids for node, uids in self._declined.items() if uids and node in names}
        nodes = set(names) if self._everywhere else grown | self._again
        self._again, self._everywhere = set(), False
        if not nodes or not self._order:
            return None
        rooms = {node: state.room for node in nodes if (state := ledger.node(node)) is not None}
        begun = Pass((max(room.rising, default=-1), node) for node, room in rooms.items() if room is not None)
        for entry in self._offers.values():  # not to be offered a second time
            room = rooms.get(entry.offered)
            if room is not None and all(gpu < len(room.free) for gpu, _ in entry.taken):
                begun.take(entry.offered, entry.taken, len(room.free), sure=_is_sure(entry, entry.offered))
        return begun

    def _look_through(self, ledger: Ledger, begun: Pass, budget: Budget) -> Iterator[tuple[Refused, str]]:
        most, total = self._largest(ledger, begun)
        start = bisect_right(self._order, begun.done) if begun.done is not None else 0
        for turn in self._order[start:]:
            if budget.left <= 0:
                return
            entry = self.refused[turn[2]]
            budget.left -= CANDIDATE_LOOKS
            if entry.most <= most and entry.total <= total:
                node = self._place(ledger, begun, entry, budget, late=False)
                if node is None:
                    return
                if node:
                    yield entry, node
                    most, total = self._largest(ledger, begun)
                    budget.left -= len(begun.nodes)
            begun.done = turn
        while begun.late:
            if budget.left <= 0:
                return
            entry = begun.late[0]
            still = self.refused.get(entry.pod.uid) is entry and not entry.offered
            node = self._place(ledger, begun, entry, budget, late=True) if still else ""
            if node is None:
                return
            begun.late.pop(0)
            if node:
                yield entry, node
        self._pass = None

    def _largest(self, ledger: Ledger, begun: Pass) -> tuple[int, int]:
        """The largest free GPU and the most free in all on one of these nodes: whoever wants more is passed over."""
        rooms = [
            room
            for room in (_rest(ledger, begun, None, node, sure=True) for _, node in begun.nodes)
            if room is not None
        ]
        # A node where something is promised may have more for the pod it is promised to, never more than this.
        most = max([room.rising[-1] for room in rooms if room.rising], default=-1)
        return most, max([room.sum_free for room in rooms], default=-1)

    def _place(self, ledger: Ledger, begun: Pass, entry: Refused, budget: Budget, *, late: bool) -> str | None:
        """The first node that the pod fits, beside those that were woken for it. What it would get is counted there.
        Empty: none; None: the budget is used up, and the next turn goes on from that node."""
        pod, kind, declined = entry.pod, entry.kind, False
        first = begun.stopped[1] if begun.stopped[0] == pod.uid else 0
        if not late and not first and begun.is_unoffered_some(kind):
            begun.late.append(entry)
        promised = ledger.is_promised(pod.uid)  # which is no use to its like
        if (kind, late) in begun.hopeless and not promised:
            return ""
        for position, (largest, node) in enumerate(begun.nodes[first:], first):
            if largest < entry.most:
                break  # so are all that follow
            budget.left -= 1
            if pod.uid in self._declined.get(node, ()):
                declined = True
            elif self._may_come(entry, node, late) and self._take(ledger, begun, entry, node, budget):
                return node
            if budget.left <= 0:  # perhaps in the middle of this node, unless it had the whole turn
                begun.stopped = pod.uid, position if position > first else position + 1
                return None
        begun.stopped = "", 0
        if not declined:
            begun.hopeless.add((kind, late))
        return ""

    def _may_come(self, entry: Refused, node: str, late: bool) -> bool:
        offered = entry.names is None or node in entry.names
        return offered is not late and self._open_to(entry.pod, node)

    def _take(self, ledger: Ledger, begun: Pass, entry: Refused, node: str, budget: Budget) -> bool:
        """Whether a pod fits a node beside those that were woken for it. If so, it is counted with them."""
        budget.left -= cost.NODE_LOOKS
        sure = _is_sure(entry, node)
        room = _rest(ledger, begun, entry.pod, node, sure=sure)
        if room is None or not room.rising or room.rising[-1] < entry.most:
            return False
        question, pod = entry.question, entry.pod
        if question.off_limits(room.facts) is not None or ledger.puts_off(question.request, node, pod.uid, budget):
            return False
        places = question.places(room, policies.DEFAULT, budget)
        if places is None:
            return False
        entry.taken = ()
        if ledger.nomination(pod.uid) != node:  # a nomination counts against the others as it is
            entry.taken = gpu_choice.charges(question.request.shares, room.facts.gpus, places)
            begun.take(node, entry.taken, len(room.free), sure=sure)
        return True

    def _kept(self, names: Sequence[str] | None) -> frozenset[str] | None:
        """The nodes a scheduler offered, the same list kept once. The oldest of too many is forgotten by all."""
        if names is None:
            return None
        offered = frozenset(names)
        if offered not in self._names and len(self._names) >= OFFERS_KEPT:
            oldest = next(iter(self._names))
            del self._names[oldest]
            for entry in self.refused.values():
                if entry.names is oldest:
                    entry.names = None
        return self._names.setdefault(offered, offered)

    def _decline(self, uid: str) -> None:
        entry = self._offers.get(uid)
        if entry is not None:
            self._declined.setdefault(entry.offered, set()).add(uid)
            self._again.add(entry.offered)

    def _forget(self, uid: str) -> None:
        entry = self.refused.pop(uid, None)
        if entry is None:
            return
        if self._offers.pop(uid, None) is None:
            del self._order[bisect_right(self._order, entry.turn) - 1]
        if not self.refused:
            self._names.clear()  # nodes come and go; so do the lists of them


def _is_sure(entry: Refused, node: str) -> bool:
    """Whether the scheduler is known to have offered it that node."""
    return entry.names is not None and node in entry.names


def _rest(ledger: Ledger, begun: Pass, pod: PodFacts | None, node: str, *, sure: bool) -> Room | None:
    """What a node has free for a pod, or for the luckiest, beside those that were woken for it."""
    state = ledger.node(node)
    if state is None or state.room is None:
        return None
    room = state.room_for(pod) if pod is not None and state.promised else state.room
    extra = begun.taken[sure].get(node)
    if room is None or extra is None or len(extra) != len(room.free):
        return room
    known = begun.left.get((node, sure))
    if known is not None and known[0] is room:
        return known[1]
    used = [gpu.total - free + more for gpu, free, more in zip(room.facts.gpus, room.free, extra, strict=True)]
    rest = Room.of(room.facts, used)
    begun.left[node, sure] = room, rest
    return rest
