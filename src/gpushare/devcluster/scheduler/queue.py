"""The pods that wait to be scheduled, and when each is tried again: kube-scheduler's queue, in small.

Pure: the time comes in. A pod is *active* (tried next, by priority, then by when it came to the queue), *backing off*
after a failure (1 s, doubling to 10 s), *waiting* for a change that could help it, or *gated*. As in kube-scheduler
from 1.33 on, a pod that backs off after a refusal is tried at once while no pod is active; after an error it is not.
A change that comes while a pod is tried counts as soon as the pod has failed.
"""

import itertools
from collections.abc import Set
from enum import Enum

from gpushare.core.facts.intree import Pod
from gpushare.devcluster.scheduler import hints
from gpushare.devcluster.scheduler.hints import Change


class Place(Enum):
    ACTIVE = 1
    BACKING_OFF = 2
    WAITING = 3
    GATED = 4
    TRIED = 5  # right now
    BINDING = 6  # a node was found; it stays until the API server shows it there


class Queued:
    """One pod of the queue."""

    __slots__ = ("condition", "errors", "order", "place", "pod", "refusals", "refused_by", "since", "until")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.place = Place.GATED
        self.order = 0
        self.since = 0.0  # of its last failure
        self.until = 0.0  # when its back-off ends
        self.refusals = 0
        self.errors = 0  # in a row
        self.refused_by: Set[str] = frozenset()  # empty after an error
        self.condition = _condition(pod)  # its reason and message

    def rank(self) -> tuple[int, int]:
        return -(self.pod.spec.priority or 0), self.order


class Queue:
    """`first` and `longest` back-off and how long a pod waits `at_most`, in seconds."""

    def __init__(self, *, first: float = 1.0, longest: float = 10.0, at_most: float = 300.0) -> None:
        self.pods: dict[str, Queued] = {}  # by uid
        self._first, self._longest, self._at_most = first, longest, at_most
        self._order = itertools.count(1)
        self._meanwhile: list[Change] | None = None  # changes since the pod that is tried was taken

    def put(self, pod: Pod, now: float) -> None:
        """A pod to be scheduled is new, or has changed."""
        known = self.pods.get(pod.metadata.uid)
        if known is None:
            known = self.pods[pod.metadata.uid] = Queued(pod)
        edit, known.pod = hints.PodEdited(known.pod, pod), pod
        if known.place is Place.GATED and not pod.spec.scheduling_gates:
            known.place, known.order = Place.ACTIVE, next(self._order)
        elif known.place is Place.TRIED and self._meanwhile is not None:
            self._meanwhile.append(edit)
        elif known.place is Place.WAITING and hints.could_help(edit, pod, known.refused_by):
            self._again(known, now)

    def drop(self, uid: str) -> None:
        """The pod is gone, or bound."""
        self.pods.pop(uid, None)

    def happened(self, change: Change, now: float) -> None:
        """Something changed in the cluster: pods that it could help are tried again."""
        if self._meanwhile is not None:
            self._meanwhile.append(change)
        for queued in self.pods.values():
            if queued.place is Place.WAITING and hints.could_help(change, queued.pod, queued.refused_by):
                self._again(queued, now)

    def take(self, now: float) -> Queued | None:
        """The next pod to try. Afterwards call `failed` or `binding`."""
        for queued in self.pods.values():
            if now >= self._ends(queued):
                queued.place = Place.ACTIVE
        ready = [queued for queued in self.pods.values() if queued.place is Place.ACTIVE]
        early = [q for q in self.pods.values() if q.place is Place.BACKING_OFF and q.refused_by]
        if not ready and not early:
            return None
        taken = min(ready, key=Queued.rank) if ready else min(early, key=lambda q: (q.until, q.rank()))
        taken.place, self._meanwhile = Place.TRIED, []
        return taken

    def due(self) -> float:
        """When time alone makes a pod active; infinity if never."""
        return min(map(self._ends, self.pods.values()), default=float("inf"))

    def binding(self, queued: Queued) -> bool:
        """A node was found for it. False: the pod is gone meanwhile."""
        queued.place, self._meanwhile = Place.BINDING, None
        return self._knows(queued)

    def failed(self, queued: Queued, refused_by: Set[str], now: float) -> bool:
        """These refused it; empty after an error. False: the pod is gone meanwhile."""
        meanwhile: list[Change] = []
        if queued.place is Place.TRIED:
            meanwhile, self._meanwhile = self._meanwhile or [], None
        if not self._knows(queued):
            return False
        queued.errors = 0 if refused_by else queued.errors + 1
        queued.refusals += bool(refused_by)
        queued.refused_by, queued.since, queued.order = refused_by, now, next(self._order)
        failures = queued.errors or queued.refusals
        queued.until = now + min(self._first * 2 ** min(failures - 1, 30), self._longest)
        queued.place = Place.WAITING
        if not refused_by or any(hints.could_help(change, queued.pod, refused_by) for change in meanwhile):
            self._again(queued, now)
        return True

    def _knows(self, queued: Queued) -> bool:
        return self.pods.get(queued.pod.metadata.uid) is queued

    def _again(self, queued: Queued, now: float) -> None:
        queued.place = Place.BACKING_OFF if now < queued.until else Place.ACTIVE

    def _ends(self, queued: Queued) -> float:
        """When its back-off, or its waiting, is over."""
        if queued.place is Place.BACKING_OFF:
            return queued.until
        return queued.since + self._at_most if queued.place is Place.WAITING else float("inf")


def _condition(pod: Pod) -> tuple[str, str] | None:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason or "", condition.message or ""
    return None
