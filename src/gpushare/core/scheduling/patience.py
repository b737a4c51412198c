"""Fair waiting: a pod that has waited too long is kept the GPUs that need least to become free for it.

Without this a large pod may wait for ever: small ones take whatever comes free before enough of it is together. Who
has waited longer than the patience gets a turn, the most important first, then the oldest: what comes free on certain
GPUs goes to nobody of its priority or less until it is placed, or can no longer be placed there. What is kept at one
time is a small part of the cluster, so that turns come one after the other.

Pure but for what it remembers; time comes in as an argument. The extender calls `update` every second. What is kept
is written on the pod, for people and for the next extender: `write`, `read`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from heapq import nsmallest
from typing import NamedTuple

import msgspec

from gpushare.core.explain.report import KeptView
from gpushare.core.facts import names, policies
from gpushare.core.facts.model import NodeFacts, Places, PodFacts, Request, Role
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room

SHARE = 20  # one healthy GPU in so many may be kept; at least one
VAIN_SECONDS = 24 * 3600.0  # a turn in which nothing comes free for so long ends, and the next lasts twice as long
COME_SECONDS = 60.0  # all is free, and still the scheduler does not bring the pod: another rule keeps it off
AGAIN_SECONDS = 30.0  # until a pod is looked at again for which there is no place, or room already
MOST_CHOICES = 4  # places looked for in one update; each may look at many nodes
MOST_NODES = 64  # looked at for one pod, the closest first


class Reach(NamedTuple):
    """Which nodes are open to a pod by its rules and theirs. Where one node is meant, that one is asked for: to list
    them all costs a look at each."""

    allowed: Callable[[PodFacts], Collection[str] | None] = lambda pod: None  # None: all
    open_to: Callable[[PodFacts, str], bool] = lambda pod, node: True


ANYWHERE = Reach()


class Changes(NamedTuple):
    given: list[Kept]
    ended: list[PodFacts]  # placed, or waiting on


class Turn:
    """What is kept for one pod, and how that goes. `short`: the least that was missing so far, at `moved`."""

    __slots__ = ("free_since", "kept", "moved", "short")

    def __init__(self, kept: Kept, short: int, now: float) -> None:
        self.kept = kept
        self.short = short
        self.moved = now
        self.free_since: float | None = None  # nothing is missing any more

    def see(self, short: int, now: float) -> None:
        if short < self.short:
            self.short, self.moved = short, now
        if short:
            self.free_since = None
        elif self.free_since is None:
            self.free_since = now


class Later:
    """A pod whose turn was in vain, or for which there was no place: not before `until`."""

    __slots__ = ("length", "tried", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.length = VAIN_SECONDS
        self.tried: set[str] = set()  # nodes


class Place(NamedTuple):
    """Where a pod needs least. In this order the best is the smallest."""

    tried: bool
    short: int
    node: str
    keys: tuple[tuple[str, ...], ...]


class Patience:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds  # 0: nobody ever gets a turn
        self.turns: dict[str, Turn] = {}
        self._later: dict[str, Later] = {}
        self._since: dict[str, float] = {}
        self._wiped: dict[str, str] = {}  # told to be ended, by uid: the annotation that is still seen

    def update(self, ledger: Ledger, pending: Collection[PodFacts], reach: Reach, now: float) -> Changes:
        """Who is kept something from now on, who no longer. `pending`: every pod without a node; `now`: since 1970."""
        due = self._due(pending, now) if self.seconds else []
        changes = Changes([], [])
        for uid in self.turns.keys() - {pod.uid for pod in due}:  # placed or gone
            if ledger.bound(uid) is not None:
                changes.ended.append(self.turns[uid].kept.pod)  # a binding cannot take an annotation off
            self._end(ledger, uid)
        if due:
            self._go_round(ledger, due, reach, now, changes)
        self._wipe(pending, changes)
        return changes

    def _wipe(self, pending: Collection[PodFacts], changes: Changes) -> None:
        """What is written on pods whose turn it is not, by somebody before us or by who hopes for one, is taken off:
        told once for each time that it is written."""
        seen, told = {}, {pod.uid for pod in changes.ended}
        for pod in pending:
            note = pod.annotation(names.KEPT) if pod.annotations and pod.uid not in self.turns else None
            if note:
                seen[pod.uid] = note
                if pod.uid not in told and self._wiped.get(pod.uid) != note:
                    changes.ended.append(pod)
        self._wiped = seen

    def _due(self, pending: Collection[PodFacts], now: float) -> list[PodFacts]:
        """Those that have waited long enough, in the order of their turns. Whoever has a turn keeps it among equals.
        A pod waits since its condition says so, but not since before it was last seen without one: held back by a
        gate, it does not wait for GPU memory."""
        since = self._since
        if len(since) > 2 * len(pending) + 100:
            alive = {pod.uid for pod in pending}
            for known in (since, self._later):
                for uid in known.keys() - alive:
                    del known[uid]
        due = []
        for pod in pending:
            if not pod.unschedulable:
                since[pod.uid] = now
            elif pod.uid not in since:
                since[pod.uid] = min(moment(pod.waits_since, now), now)
            if now - since[pod.uid] > self.seconds and _may_wait(pod):
                due.append(pod)
        due.sort(key=lambda pod: (-pod.priority, pod.uid not in self.turns, since[pod.uid], pod.uid))
        return due

    def _go_round(self, ledger: Ledger, due: Sequence[PodFacts], reach: Reach, now: float, changes: Changes) -> None:
        """The first may be given more GPUs than the limit says, or it would wait for ever. Nobody behind one that must
        wait for its turn gets his before: a stream of small ones would pass it for ever."""
        limit, gpus, choices, budget = most_gpus(ledger), 0, MOST_CHOICES, Budget(cost.CALL_LOOKS)
        for pod in due:
            kept = self._still(ledger, pod, reach, now) if gpus < limit else None
            if kept is None and gpus < limit and choices and self._may_come(pod.uid, now):
                choices -= 1
                kept = self._choose(ledger, pod, reach, now, budget)
            count = len({key for keys in kept.keys for key in keys}) if kept is not None else 0
            if kept is None or (gpus and gpus + count > limit):
                gpus = limit if kept is not None else gpus
                if pod.uid in self.turns:
                    self._end(ledger, pod.uid)
                    changes.ended.append(pod)
                continue
            gpus += count
            if pod.uid not in self.turns or self.turns[pod.uid].kept != kept:
                self._give(ledger, kept, now)
                changes.given.append(kept)

    def _still(self, ledger: Ledger, pod: PodFacts, reach: Reach, now: float) -> Kept | None:
        """What is kept for the pod, if it can still be placed there and that is not in vain."""
        turn = self.turns.get(pod.uid)
        short = missing(ledger, turn.kept, reach) if turn is not None and ledger.kept_for(pod.uid) is not None else None
        if turn is None or short is None:
            return None
        if ledger.holding(pod.uid) is not None:  # on its way; if it does not arrive, what was counted before goes on
            return turn.kept
        turn.see(short, now)
        later = self._later.get(pod.uid) or Later()
        if turn.free_since is not None and now - turn.free_since > COME_SECONDS:
            later.until = now + max(self.seconds, AGAIN_SECONDS)
        elif now - turn.moved > later.length:
            later.until = now + later.length
            later.length *= 2
        else:
            return turn.kept
        later.tried.add(turn.kept.node)
        self._later[pod.uid] = later
        return None

    def _may_come(self, uid: str, now: float) -> bool:
        later = self._later.get(uid)
        return later is None or now >= later.until

    def _choose(self, ledger: Ledger, pod: PodFacts, reach: Reach, now: float, budget: Budget) -> Kept | None:
        later = self._later.get(pod.uid)
        written = read(pod, self._since[pod.uid]) if later is None else None
        if written is not None and missing(ledger, written, reach) is not None:
            return written  # by an extender before this one
        place = closest(ledger, pod, reach.allowed(pod), later.tried if later is not None else (), budget)
        if place is not None and place.short:
            return Kept(pod, place.node, place.keys, self._since[pod.uid])
        later = self._later.setdefault(pod.uid, Later())
        later.until = now + AGAIN_SECONDS  # no node can ever take it, or GPU memory is not what it waits for
        return None

    def _give(self, ledger: Ledger, kept: Kept, now: float) -> None:
        ledger.keep(kept)
        short = missing(ledger, kept)
        self.turns[kept.pod.uid] = Turn(kept, short or 0, now)

    def _end(self, ledger: Ledger, uid: str) -> None:
        del self.turns[uid]
        ledger.keep_no_longer(uid)


def _may_wait(pod: PodFacts) -> bool:
    """A nominated pod is pledged what its victims leave already."""
    return bool(pod.unschedulable and isinstance(pod.request, Request) and not pod.nominated and not pod.terminating)


def most_gpus(ledger: Ledger) -> int:
    """How many GPUs may be kept at one time."""
    healthy = sum(len(room.rising) for room in ledger.rooms())
    return max(healthy // SHARE, 1)


def missing(ledger: Ledger, kept: Kept, reach: Reach = ANYWHERE) -> int | None:
    """The units that must still come free on the GPUs kept for a pod; None if it can no longer be placed there."""
    state, request = ledger.node(kept.node), kept.pod.request
    if state is None or state.facts is None or not isinstance(request, Request):
        return None
    facts, charges = state.facts, kept.charges(state.facts)
    if charges is None or Question(request).off_limits(facts) is not None or not reach.open_to(kept.pod, kept.node):
        return None
    if any(not facts.gpus[gpu].healthy or amount > facts.gpus[gpu].total for gpu, amount in charges):
        return None
    return _short(facts, charges, state.taken_for(kept.pod, facts))


def closest(
    ledger: Ledger, pod: PodFacts, nodes: Collection[str] | None, tried: Collection[str], budget: Budget
) -> Place | None:
    """Where least must come free for a pod; None if it has no place anywhere, whatever came free. Nodes where that was
    waited for in vain come last."""
    assert isinstance(pod.request, Request)
    question, able, need, near = (
        Question(pod.request),
        _ability(pod.request),
        max(s.each for s in pod.request.shares),
        [],
    )
    for name in ledger.node_names() if nodes is None else nodes:
        state = ledger.node(name)
        room = state.room if state is not None else None
        if room is not None and able(room) and question.off_limits(room.facts) is None:
            largest = room.rising[-1]
            near.append((name in tried, max(need - largest, 0), name))  # no less than that is missing
    best: Place | None = None
    for was_tried, least, name in nsmallest(MOST_NODES, near):
        if budget.left <= 0 or (best is not None and best[:2] <= (was_tried, least)):
            break
        state = ledger.node(name)
        found = _on(state, pod, pod.request, budget) if state is not None else None
        if found is not None:
            place = Place(was_tried, found[0], name, found[1])
            best = place if best is None else min(best, place)
    return best


def _ability(request: Request) -> Callable[[Room], bool]:
    """Whether a node might ever take it, by the sizes of its GPUs alone: there are too many nodes to look closer."""
    each, gpus = max(share.each for share in request.shares), max(share.gpus for share in request.shares)
    stays = [share for share in request.shares if share.role is not Role.INIT]
    gpus, units = max(gpus, sum(s.gpus for s in stays if s.kind.exclusive)), sum(s.units for s in stays)
    return lambda room: each <= room.largest and gpus <= len(room.rising) and units <= room.facts.capacity


def _on(
    state: NodeState, pod: PodFacts, request: Request, budget: Budget
) -> tuple[int, tuple[tuple[str, ...], ...]] | None:
    """What must come free on a node, and on which GPUs. As few GPUs as possible are thought of as emptied, those first
    that need least: for one container that is exactly the least, for several it is near."""
    facts = state.facts
    assert facts is not None
    taken = state.taken_for(pod, facts)
    promised = [all_ - held for all_, held in zip(taken, state.effective(), strict=True)]
    whole = any(share.kind.exclusive for share in request.shares)
    well = [i for i, gpu in enumerate(facts.gpus) if gpu.healthy]
    well.sort(key=lambda i: (taken[i] if whole else taken[i] - facts.gpus[i].total, i))
    then = list(taken)
    for emptied in (None, *well):
        if emptied is not None:
            then[emptied] = promised[emptied]
        budget.left -= 4 * cost.NODE_LOOKS
        places = gpu_choice.plan(request, Room.of(facts, then), policies.DEFAULT, budget)
        if places is not None:
            charges = gpu_choice.charges(request.shares, facts.gpus, places)
            return _short(facts, charges, taken), _keys(facts, places)
    return None


def _short(facts: NodeFacts, charges: Iterable[tuple[int, int]], taken: Sequence[int]) -> int:
    return sum(max(amount - (facts.gpus[gpu].total - taken[gpu]), 0) for gpu, amount in charges)


def _keys(facts: NodeFacts, places: Places) -> tuple[tuple[str, ...], ...]:
    return tuple([tuple([facts.gpus[gpu].key for gpu in chosen]) for chosen in places])


def moment(written: str, otherwise: float) -> float:
    """Seconds since 1970 of a time as the API server writes it."""
    try:
        return datetime.fromisoformat(written).timestamp() if written else otherwise
    except ValueError:
        return otherwise


def view(ledger: Ledger, pod: PodFacts) -> KeptView | None:
    """What is kept for a pod, for people."""
    kept = ledger.kept_for(pod.uid)
    short = missing(ledger, kept) if kept is not None else None
    facts = ledger.facts(kept.node) if kept is not None else None
    if kept is None or short is None or facts is None:
        return None
    return KeptView(kept.node, [facts.gpus[gpu].index for gpu, _ in kept.charges(facts) or ()], short, facts.unit)


def served_before(ledger: Ledger, pod: PodFacts, nodes: Iterable[str]) -> list[str]:
    """For whom something is kept on these nodes that this pod could use."""
    there = frozenset(nodes)
    kept = [other for other in ledger.kept() if other.node in there]
    others = {other.pod.uid: other.pod for other in kept if other.pod.priority >= pod.priority}
    others.pop(pod.uid, None)
    return sorted(f"{other.namespace}/{other.name}" for other in others.values())


class _Note(msgspec.Struct):
    node: str
    gpus: list[list[str]]  # of each container that asks, by uuid


def write(kept: Kept) -> str:
    """The annotation that says what is kept for a pod."""
    return msgspec.json.encode(_Note(kept.node, [list(keys) for keys in kept.keys])).decode()


def read(pod: PodFacts, since: float) -> Kept | None:
    """What the annotation says; None if there is none, or none that means anything for this pod. Whoever acts on it
    finds out for himself whether the pod's turn has come."""
    request, written = pod.request, pod.annotation(names.KEPT)
    if written is None or not isinstance(request, Request) or pod.node or pod.terminating or pod.finished:
        return None
    try:
        note = msgspec.json.decode(written, type=_Note)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    wanted = [share.gpus for share in request.shares]
    if [len(set(keys)) for keys in note.gpus] != wanted or [len(keys) for keys in note.gpus] != wanted:
        return None
    return Kept(pod, note.node, tuple([tuple(keys) for keys in note.gpus]), since)


def show(ledger: Ledger, pods: Iterable[PodFacts]) -> None:
    """Keep in a ledger what the annotations of waiting pods say: for who looks, and decides nothing."""
    for pod in pods:
        kept = read(pod, moment(pod.waits_since or pod.created, 0.0))
        if kept is not None and missing(ledger, kept) is not None:
            ledger.keep(kept)
