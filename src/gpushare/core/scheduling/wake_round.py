"""One round of wake-ups: a look through all waiting pods for the nodes where something came free.

A round chooses, by priority and then age, only as many pods as fit together. It counts what they would get, so that
nothing is offered twice. A call looks at as many pods as its budget allows, and the next call goes on from there.
Pure but for what it remembers; `wakeups` begins rounds.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gpushare.core.facts import policies
from gpushare.core.facts.model import Charges, PodFacts, Request, Role, Rules, Shape
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room, Taken

CANDIDATE_LOOKS = 2  # what passing over a pod costs, in GPUs looked at
NOT_YET = float("inf")

Group = tuple[Shape, int, Rules | None, frozenset[str] | None]
"""Pods that are equal in this can use the same nodes."""

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
    def group(self) -> Group:
        return self.shape, self.pod.priority, self.pod.rules, self.names

    def is_sure_of(self, node: str) -> bool:
        """Whether the scheduler is known to have offered it that node."""
        return self.names is not None and node in self.names


class Round:
    def __init__(self, rooms: Mapping[str, Room], open_to: OpenTo, offers: Iterable[Refused]) -> None:
        """`rooms`: of the nodes where something came free. `offers`: pods that were woken before and have not come."""
        self.is_over = False
        # Largest free GPU and name, the emptiest first.
        nodes = [(max(room.rising, default=-1), node) for node, room in rooms.items()]
        self._nodes = sorted(nodes, key=lambda node: (-node[0], node[1]))
        self._open_to = open_to
        # By node: what is offered to pods that have not come yet. Under True only what was offered to pods that
        # the scheduler is known to offer that node: the others may never come, and must not delay those.
        self._taken: dict[bool, dict[str, Taken]] = {True: {}, False: {}}
        self._left: dict[tuple[str, bool], tuple[Room, Room]] = {}  # what is free, and what of it is not offered yet
        self._hopeless: set[tuple[Group, bool]] = (
            set()
        )  # that fit no node, and whether late; free memory only shrinks during a round
        self._late: list[Refused] = []  # some of these nodes were not offered to them last time
        self._unoffered: dict[Group, bool] = {}
        self._done: Turn | None = None  # whose turn was last
        self._stopped: tuple[str, int] = ("", 0)  # the pod and the node at which the budget was used up
        for entry in offers:  # what they were offered is not offered again
            room = rooms.get(entry.offered)
            if room is not None and all(charge.gpu < len(room.free) for charge in entry.taken):
                self._take(entry.offered, entry.taken, len(room.free), sure=entry.is_sure_of(entry.offered))

    def go_on(
        self,
        ledger: Ledger,
        order: Sequence[Turn],
        refused: Mapping[str, Refused],
        declined: Mapping[str, Collection[str]],
        budget: Budget,
    ) -> Iterator[tuple[Refused, str]]:
        """Pods to wake, each with the node it is woken for. `order`: turns of the pods that were not woken yet.
        `declined`: by node, pods that were woken for it and did not come."""
        most, total = self._largest(ledger)
        start = bisect_right(order, self._done) if self._done is not None else 0
        for turn in order[start:]:
            if budget.left <= 0:
                return
            entry = refused[turn[2]]
            budget.left -= CANDIDATE_LOOKS
            if entry.most <= most and entry.total <= total:
                node = self._place(ledger, entry, declined, budget, late=False)
                if node is None:
                    return
                if node:
                    yield entry, node
                    most, total = self._largest(ledger)
                    budget.left -= len(self._nodes)
            self._done = turn
        while self._late:
            if budget.left <= 0:
                return
            entry = self._late[0]
            still = refused.get(entry.pod.uid) is entry and not entry.offered
            node = self._place(ledger, entry, declined, budget, late=True) if still else ""
            if node is None:
                return
            self._late.pop(0)
            if node:
                yield entry, node
        self.is_over = True

    def _largest(self, ledger: Ledger) -> tuple[int, int]:
        """The largest free GPU and the most free in all on one of these nodes: pods that want more are passed over."""
        left = [self._left_for(ledger, None, node, sure=True) for _, node in self._nodes]
        rooms = [room for room in left if room is not None]
        # A node where something is promised may have more for the pod it is promised to, never more than this.
        most = max([room.rising[-1] for room in rooms if room.rising], default=-1)
        return most, max([room.sum_free for room in rooms], default=-1)

    def _place(
        self, ledger: Ledger, entry: Refused, declined: Mapping[str, Collection[str]], budget: Budget, *, late: bool
    ) -> str | None:
        """The first node that the pod fits, besides what was offered there already. What it would get is counted there.
        Empty: none; None: the budget is used up, and the next call goes on from that node."""
        pod, group, did_not_come = entry.pod, entry.group, False
        first = self._stopped[1] if self._stopped[0] == pod.uid else 0
        if not late and not first and self._is_unoffered_some(group):
            self._late.append(entry)
        promised = ledger.is_promised(pod.uid)  # for this pod alone, not for others of its group
        if (group, late) in self._hopeless and not promised:
            return ""
        for position, (largest, node) in enumerate(self._nodes[first:], first):
            if largest < entry.most:
                break  # the following nodes have less free
            budget.left -= 1
            if pod.uid in declined.get(node, ()):
                did_not_come = True
            elif self._may_come(entry, node, late) and self._offer(ledger, entry, node, budget):
                return node
            if budget.left <= 0:  # this node is looked at again, unless it had the whole budget
                self._stopped = pod.uid, position if position > first else position + 1
                return None
        self._stopped = "", 0
        if not did_not_come:
            self._hopeless.add((group, late))
        return ""

    def _is_unoffered_some(self, group: Group) -> bool:
        """Whether the scheduler did not offer all of these nodes to such pods last time."""
        if group not in self._unoffered:
            names = group[-1]
            self._unoffered[group] = names is not None and any(node not in names for _, node in self._nodes)
        return self._unoffered[group]

    def _may_come(self, entry: Refused, node: str, late: bool) -> bool:
        offered = entry.names is None or node in entry.names
        return offered is not late and self._open_to(entry.pod, node)

    def _offer(self, ledger: Ledger, entry: Refused, node: str, budget: Budget) -> bool:
        """Whether a pod fits a node besides what was offered there already. If so, it is counted as offered."""
        budget.left -= cost.NODE_LOOKS
        sure = entry.is_sure_of(node)
        room = self._left_for(ledger, entry.pod, node, sure=sure)
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
            entry.taken = gpu_choice.charges(question.request.shares, room.facts, places)
            self._take(node, entry.taken, len(room.free), sure=sure)
        return True

    def _take(self, node: str, charges: Charges, gpus: int, *, sure: bool) -> None:
        for taken in (self._taken[True], self._taken[False]) if sure else (self._taken[False],):
            extra = taken.get(node)
            if extra is None or len(extra.units) != gpus:  # the node may have got or lost GPUs since
                extra = taken[node] = Taken.nothing(gpus)
            extra.add(charges)
        self._left.pop((node, True), None)
        self._left.pop((node, False), None)

    def _left_for(self, ledger: Ledger, pod: PodFacts | None, node: str, *, sure: bool) -> Room | None:
        """What a node has free for a pod, besides what was offered already. Without a pod: the most for any pod."""
        state = ledger.node(node)
        if state is None or state.room is None:
            return None
        room = state.room_for(pod) if pod is not None and state.promised else state.room
        extra = self._taken[sure].get(node)
        if room is None or extra is None or len(extra.units) != len(room.free):
            return room
        known = self._left.get((node, sure))
        if known is not None and known[0] is room:
            return known[1]
        facts = room.facts
        used = [gpu.total - free + more for gpu, free, more in zip(facts.gpus, room.free, extra.units, strict=True)]
        slots = [facts.slots - free + more for free, more in zip(room.free_slots, extra.slots, strict=True)]
        left = Room.of(facts, used, slots)
        self._left[node, sure] = room, left
        return left
