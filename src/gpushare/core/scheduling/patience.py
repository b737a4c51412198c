"""Fair waiting: whose turn it is to have GPUs kept.

Without this a large pod may wait for ever: small ones take whatever comes free before enough of it is together. A pod
that has waited longer than the patience gets a turn, the most important first, then the oldest. From then on, what
comes free on certain GPUs (`kept_place` chooses them) goes to no other pod of its priority or less, until the pod is
placed or can no longer be placed there. Only a small part of the cluster is kept at one time, so turns come one after
the other.

Pure but for what it remembers; time comes in as an argument. The extender calls `update` every second, and writes what
is kept on the pod.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from gpushare.core.annotations import kept_gpus
from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost
from gpushare.core.placement.cost import Budget
from gpushare.core.scheduling import kept_place
from gpushare.core.scheduling.reach import Reach

SHARE = 20  # one of so many healthy GPUs may be kept at a time; at least one
VAIN_SECONDS = 24 * 3600.0  # if nothing comes free for so long, the turn ends; the next lasts twice as long
COME_SECONDS = 60.0  # if all is free for so long and the pod is not placed, something else keeps it off
AGAIN_SECONDS = 30.0  # until the next look at a pod that has no place anywhere, or that fits already
MOST_CHOICES = 4  # places looked for in one update; each may look at many nodes


class Changes(NamedTuple):
    given: list[Kept]
    ended: list[PodFacts]  # placed, or still waiting


class Turn:
    """What is kept for one pod. `short`: the least amount that was missing so far, reached at `moved`."""

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
    """A pod whose turn brought nothing, or that has no place anywhere: no turn before `until`."""

    __slots__ = ("length", "tried", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.length = VAIN_SECONDS
        self.tried: set[str] = set()  # nodes


class Patience:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds  # 0: no pod ever gets a turn
        self.turns: dict[str, Turn] = {}
        self._later: dict[str, Later] = {}
        self._since: dict[str, float] = {}
        self._wiped: dict[str, str] = {}  # by uid: an annotation that is to be removed, and is still there

    def update(self, ledger: Ledger, pending: Collection[PodFacts], reach: Reach, now: float) -> Changes:
        """For whom GPUs are kept from now on, and for whom no longer. `pending`: every pod without a node; `now`: since
        1970."""
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
        """The annotation is removed from pods that have no turn. An extender before us wrote it, or a user who wants a
        turn. Each value is named once in `ended`."""
        written, ended = {}, {pod.uid for pod in changes.ended}
        for pod in pending:
            value = pod.annotation(names.KEPT) if pod.annotations and pod.uid not in self.turns else None
            if value:
                written[pod.uid] = value
                if pod.uid not in ended and self._wiped.get(pod.uid) != value:
                    changes.ended.append(pod)
        self._wiped = written

    def _due(self, pending: Collection[PodFacts], now: float) -> list[PodFacts]:
        """Pods that have waited long enough, in the order of their turns. Among equals a pod that has a turn keeps it.
        A pod waits since the time in its condition, but not since before it was last seen without the condition: a
        pod behind a scheduling gate does not wait for GPU memory."""
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
            if now - since[pod.uid] > self.seconds and _may_have_turn(pod):
                due.append(pod)
        due.sort(key=lambda pod: (-pod.priority, pod.uid not in self.turns, since[pod.uid], pod.uid))
        return due

    def _go_round(self, ledger: Ledger, due: Sequence[PodFacts], reach: Reach, now: float, changes: Changes) -> None:
        """The first pod may get more GPUs than the limit, or it would wait for ever. No pod passes one that the limit
        makes wait: a stream of small pods would pass it for ever."""
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
        """What is kept for the pod, if the pod can still be placed there and something still comes free."""
        turn = self.turns.get(pod.uid)
        if turn is None or ledger.kept_for(pod.uid) is None:
            return None
        short = kept_place.missing(ledger, turn.kept, reach)
        if short is None:
            return None
        if ledger.holding(pod.uid) is not None:  # it is being placed; if that fails, the turn goes on as before
            return turn.kept
        turn.see(short.amount, now)
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
        before = written(pod, self._since[pod.uid]) if later is None else None
        if before is not None and kept_place.missing(ledger, before, reach) is not None:
            return before  # by an extender before this one
        place = kept_place.closest(ledger, pod, reach.allowed(pod), later.tried if later is not None else (), budget)
        if place is not None and place.short:
            return Kept(pod, place.node, place.keys, self._since[pod.uid])
        later = self._later.setdefault(pod.uid, Later())
        later.until = now + AGAIN_SECONDS  # no node can ever take it, or it waits for something else than GPU memory
        return None

    def _give(self, ledger: Ledger, kept: Kept, now: float) -> None:
        ledger.keep(kept)
        short = kept_place.missing(ledger, kept)
        self.turns[kept.pod.uid] = Turn(kept, short.amount if short else 0, now)

    def _end(self, ledger: Ledger, uid: str) -> None:
        del self.turns[uid]
        ledger.keep_no_longer(uid)


def _may_have_turn(pod: PodFacts) -> bool:
    """Whether a pod may have a turn. A nominated pod has a promise already."""
    return bool(pod.unschedulable and isinstance(pod.request, Request) and not pod.nominated and not pod.terminating)


def most_gpus(ledger: Ledger) -> int:
    """How many GPUs may be kept at one time."""
    healthy = sum(len(room.rising) for room in ledger.rooms())
    return max(healthy // SHARE, 1)


def moment(written: str, otherwise: float) -> float:
    """Seconds since 1970 of a time as the API server writes it."""
    try:
        return datetime.fromisoformat(written).timestamp() if written else otherwise
    except ValueError:
        return otherwise


def written(pod: PodFacts, since: float) -> Kept | None:
    """What the annotation of a pod says is kept for it. `since`: since when the pod waits."""
    gpus = kept_gpus.read(pod)
    return Kept(pod, gpus.node, gpus.keys, since) if gpus is not None else None


def show(ledger: Ledger, pods: Iterable[PodFacts]) -> None:
    """Keep in a ledger what the annotations of waiting pods say. For commands that only show it."""
    for pod in pods:
        kept = written(pod, moment(pod.waits_since or pod.created, 0.0))
        if kept is not None and kept_place.missing(ledger, kept) is not None:
            ledger.keep(kept)
