"""Pods on bad GPUs that should run elsewhere: which ones, in which order, and whether they would find a place.

A GPU is bad if it is unhealthy, or if another pod uses more of it than it asked for. It must have been so for a minute:
GPUs flap, and an extender that restarts again and again must not evict a pod each time. Only a pod whose controller
makes a new one is moved, and only while another place is free for it: a place on a bad GPU is better than none.

The order: pods on unhealthy GPUs before those with a neighbour that uses too much; then the most important; then those
whose GPU has been bad for longest. There is at most one eviction a minute in all. The same pod is not tried twice
within ten minutes. A new pod may come back to a GPU that a neighbour over-uses, because the policy decides where it
goes; so for that reason pods of one controller leave one GPU at most once an hour. The place that was found for a pod
is promised to its successor: nobody else is evicted for the sake of it while the pod ends, and a minute longer.

Pure but for what it remembers.

What happens next: `extender/policy/rescheduler.py` evicts the pod, its controller makes a new one, and kube-scheduler
asks for a place for that.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from gpushare.core.facts import objects, policies, request
from gpushare.core.facts.model import Data, Gpu, NodeFacts, PodFacts, Request, Unit
from gpushare.core.ledger.holding import Holding, State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room, Taken
from gpushare.core.scheduling import preempt
from gpushare.core.scheduling.reach import Reach
from gpushare.core.scheduling.system_pods import is_of_the_system

BAD_SECONDS = 60.0  # for so long a GPU must have been bad
PAUSE_SECONDS = 60.0  # between two evictions, and before a pod is tried again that could not go
SAME_POD_SECONDS = 600.0
SAME_CONTROLLER_SECONDS = 3600.0  # off the same over-used GPU
PROMISE_SECONDS = 600.0  # no pod ends for longer than that, or it never does
NODE_LOOKS = 50  # what it costs to imagine a node without its bad GPUs, in GPUs looked at

OverUsers = Callable[[str], Mapping[str, Collection[str]]]
"""By node: the uids of pods that use more of a GPU than they asked for, by uuid of the GPU. What is unknown is left
out."""

Promised = Mapping[str, Sequence[Request]]
"""By node: what was promised to pods that were evicted."""
NOTHING: Promised = {}


class Why(StrEnum):
    UNHEALTHY = "unhealthy"
    OVER_USED = "overuse"


class Candidate(Data, frozen=True):
    """A pod that should leave its GPU."""

    pod: PodFacts  # as it is bound
    gpu: Gpu
    why: Why
    since: float  # when its GPU was first seen so

    @property
    def turn(self) -> tuple[bool, int, float, str, str]:
        return self.why is not Why.UNHEALTHY, -self.pod.priority, self.since, self.pod.created, self.pod.uid


class _Promise:
    """The place that was found for an evicted pod. `seen`: when the pod was last there."""

    __slots__ = ("node", "request", "seen", "since")

    def __init__(self, node: str, request: Request, now: float) -> None:
        self.node, self.request, self.since, self.seen = node, request, now, now

    def counts(self, now: float) -> bool:
        return now - self.seen < PAUSE_SECONDS and now - self.since < PROMISE_SECONDS


class Rescheduling:
    def __init__(self) -> None:
        self._bad_since: dict[tuple[str, str, Why], float] = {}  # by node, GPU and what is wrong with it
        self._rests: dict[object, float] = {}  # until when a pod, or a controller on a GPU, is left alone
        self._promises: dict[str, _Promise] = {}  # by uid of the pod that was evicted
        self._next = 0.0  # when the next pod may go

    def forget(self) -> None:
        """Nobody looks for a while: what is bad then was not watched."""
        self._bad_since.clear()

    def candidates(self, ledger: Ledger, over_users: OverUsers, now: float) -> list[Candidate]:
        """Those that should go now, the first one first. To be called every few seconds."""
        bad = [(state, gpu, why) for state in ledger.nodes() for gpu, why in _bad_gpus(state, over_users)]
        known = self._bad_since
        self._bad_since = {key: known.get(key, now) for key in ((s.name, g.key, why) for s, g, why in bad)}
        self._rests = {key: until for key, until in self._rests.items() if until > now}
        for uid, promise in self._promises.items():
            promise.seen = now if ledger.bound(uid) is not None else promise.seen
        self._promises = {uid: promise for uid, promise in self._promises.items() if promise.counts(now)}
        if now < self._next:
            return []
        found: dict[str, Candidate] = {}
        for state, gpu, why in bad:
            since = self._bad_since[state.name, gpu.key, why]
            if now - since >= BAD_SECONDS:
                users = over_users(state.name).get(gpu.uuid, ()) if why is Why.OVER_USED else ()
                for pod in _movable(state, gpu, users):
                    candidate = Candidate(pod, gpu, why, since)
                    before = found.get(pod.uid)
                    if pod.uid not in self._rests and (before is None or candidate.turn < before.turn):
                        found[pod.uid] = candidate
        return sorted(found.values(), key=lambda candidate: candidate.turn)

    def may_go(self, candidate: Candidate, controller: str) -> bool:
        """Whether pods of this controller, by its uid, have not just left this GPU for the same reason."""
        return (controller, candidate.gpu.key) not in self._rests

    def evicted(self, candidate: Candidate, controller: str, now: float) -> None:
        self.pause(now)
        self._rests[candidate.pod.uid] = now + SAME_POD_SECONDS
        if candidate.why is Why.OVER_USED:
            self._rests[controller, candidate.gpu.key] = now + SAME_CONTROLLER_SECONDS

    def promise(self, pod: PodFacts, node: str, now: float) -> None:
        """A pod (`as_new`) was evicted, because this node has room for it."""
        if isinstance(pod.request, Request):
            self._promises[pod.uid] = _Promise(node, pod.request, now)

    def promised(self) -> Promised:
        """What successors of evicted pods may still need, by node."""
        found: dict[str, list[Request]] = {}
        for promise in self._promises.values():
            found.setdefault(promise.node, []).append(promise.request)
        return found

    def pause(self, now: float) -> None:
        """Nothing can be evicted at the moment."""
        self._next = now + PAUSE_SECONDS

    def put_off(self, candidate: Candidate, now: float) -> None:
        """It cannot go now: there is no other place for it, or something keeps it."""
        self._rests[candidate.pod.uid] = now + PAUSE_SECONDS


def as_new(pod: objects.Pod, unit: Unit | None) -> PodFacts:
    """A bound pod as the one that its controller would make instead: what it asks, and which nodes it may use."""
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=None)
    return request.facts(objects.Pod(metadata, msgspec.structs.replace(pod.spec, node_name=None)), unit)


def elsewhere(
    ledger: Ledger,
    pod: PodFacts,
    leaves: str,
    reach: Reach,
    over_users: OverUsers,
    budget: Budget,
    promised: Promised = NOTHING,
) -> str:
    """A node with room for a pod (`as_new`) on GPUs that are not bad, as if the pod held nothing on the node that it
    `leaves`. What is promised to others is not for it. Empty: there is none, or to find one takes too long."""
    if not isinstance(pod.request, Request):
        return ""
    allowed = reach.allowed(pod)
    names = list(ledger.node_names() if allowed is None else allowed)
    others = [name for name in names if name != leaves]
    for name in ledger.fitting(pod.request, pod, others, budget):
        over_used, to_others = over_users(name), promised.get(name, ())
        if not over_used and not to_others:
            return name
        if budget.left <= 0:
            return ""
        if _fits(ledger, pod, name, over_used, (), budget, to_others):
            return name
    if leaves in names and _fits(ledger, pod, leaves, over_users(leaves), (pod.uid,), budget, promised.get(leaves, ())):
        return leaves
    return ""


def _fits(
    ledger: Ledger,
    pod: PodFacts,
    node: str,
    over_used: Collection[str],
    gone: Collection[str],
    budget: Budget,
    promised: Sequence[Request],
) -> bool:
    """Whether a pod fits a node besides its over-used GPUs and what is `promised`, once the pods `gone` are."""
    state = ledger.node(node)
    if state is None or state.facts is None or not isinstance(pod.request, Request):
        return False
    if ledger.puts_off(pod.request, node, pod.uid, budget) is not None:
        return False
    budget.left -= NODE_LOOKS
    there = {uid for uid in gone if state.holding(uid) is not None}
    imagined = state.imagined(_without(state.facts, over_used))
    if not promised:
        return preempt.would_fit(imagined, pod, there, budget)
    room = imagined.room_for(pod, there)
    if room is None or Question(pod.request).off_limits(room.facts) is not None:
        return False
    room = _besides(room, promised, budget)
    return gpu_choice.plan(pod.request, room, policies.DEFAULT, budget) is not None


def _besides(room: Room, promised: Sequence[Request], budget: Budget) -> Room:
    """What is left of a node when all of these have got their place. One that has it already counts twice: then the pod
    waits longer than it must."""
    for asked in promised:
        places = gpu_choice.plan(asked, room, policies.DEFAULT, budget)
        if places is not None:
            facts = room.facts
            units = [gpu.total - free for gpu, free in zip(facts.gpus, room.free, strict=True)]
            taken = Taken(units, [facts.slots - free for free in room.free_slots])
            taken.add(gpu_choice.charges(asked.shares, facts, places))
            room = Room.of(facts, taken.units, taken.slots)
    return room


def _without(facts: NodeFacts, uuids: Collection[str]) -> NodeFacts:
    """The same node, as if these GPUs were unhealthy."""
    gpus = [msgspec.structs.replace(gpu, healthy=False) if gpu.uuid in uuids else gpu for gpu in facts.gpus]
    return msgspec.structs.replace(facts, gpus=tuple(gpus))


def _bad_gpus(state: NodeState, over_users: OverUsers) -> Iterator[tuple[Gpu, Why]]:
    if state.facts is None or not state.holdings():
        return
    over_used = over_users(state.name)
    for gpu in state.facts.gpus:
        if not gpu.healthy:
            yield gpu, Why.UNHEALTHY
        elif over_used.get(gpu.uuid):
            yield gpu, Why.OVER_USED


def _movable(state: NodeState, gpu: Gpu, users: Collection[str]) -> Iterator[PodFacts]:
    """The pods on a bad GPU that may go. `users`: those that use too much of it, which go nowhere for that."""
    assert state.facts is not None
    position = state.facts.gpus.index(gpu)
    for holding in state.holdings():
        if _holds(holding, position) and _may_move(holding.pod) and holding.pod.uid not in users:
            yield holding.pod


def _holds(holding: Holding, gpu: int) -> bool:
    return holding.state is State.BOUND and any(charge.gpu == gpu for charge in holding.charges or ())


def _may_move(pod: PodFacts) -> bool:
    return pod.controlled and not pod.terminating and not pod.finished and not is_of_the_system(pod.priority)
