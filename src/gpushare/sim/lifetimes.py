"""Pods come and go at the times of the trace. Those that find no place wait, and are tried again when another ends.

As kube-scheduler does it: in the order of arrival, and pods behind one that does not fit may pass it. The replay ends
when the last pod came. Pods that wait then count with the time that they waited so far. Pure.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from math import ceil

from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.packing.model import Ask
from gpushare.sim.cluster import Cluster, Pods
from gpushare.sim.fragments import Fragments
from gpushare.sim.learning import Learner, true_mix
from gpushare.sim.results import OverTime, Points, Run, class_of
from gpushare.sim.trace import Pod, Trace


class Waiting:
    """A pod that came."""

    __slots__ = ("facts", "number", "pod")

    def __init__(self, number: int, pod: Pod, facts: PodFacts) -> None:
        self.number, self.pod, self.facts = number, pod, facts

    def __lt__(self, other: "Waiting") -> bool:
        return self.number < other.number


class Queue:
    """Pods that wait. Of pods that ask for the same only the oldest is tried: the others would find no place either."""

    def __init__(self) -> None:
        self._alike: dict[tuple[Ask, tuple[str, ...]], deque[Waiting]] = {}

    def __contains__(self, one: Waiting) -> bool:
        """Whether a pod that asks for the same waits."""
        return _kind(one) in self._alike

    def add(self, one: Waiting) -> None:
        self._alike.setdefault(_kind(one), deque()).append(one)

    def all(self) -> list[Waiting]:
        return sorted([one for alike in self._alike.values() for one in alike])

    def try_again(self, start: Callable[[Waiting], bool], worth: Callable[[PodFacts], bool]) -> None:
        """Start those that find a place now. `worth`: whether it is worth to look for one."""
        oldest = [alike[0] for alike in self._alike.values() if worth(alike[0].facts)]
        heapify(oldest)
        while oldest:
            one = heappop(oldest)
            if not start(one):
                continue
            alike = self._alike[_kind(one)]
            alike.popleft()
            if not alike:
                del self._alike[_kind(one)]
            elif worth(alike[0].facts):
                heappush(oldest, alike[0])


def _kind(one: Waiting) -> tuple[Ask, tuple[str, ...]]:
    return Ask.of(one.facts), one.pod.models


class _Replay:
    def __init__(self, trace: Trace, policy: str, ranks: Sequence[int]) -> None:
        self._cluster = Cluster(trace.nodes, ranks, policy)
        self._learner, self._queue, self._points = Learner(self._cluster), Queue(), Points(trace)
        self._fragments = Fragments(self._cluster, true_mix(trace, self._cluster))
        self._running: list[tuple[float, Waiting]] = []  # by when they end
        self._now = self.began = min([pod.arrival for pod in trace.pods])
        self.ends = max([pod.arrival for pod in trace.pods])
        self.held_seconds = 0.0  # units of GPU memory times seconds
        self.waits: list[float] = []

    def come(self, one: Waiting) -> None:
        self.advance(one.pod.arrival)
        self._learner.came(one.facts)
        if one in self._queue or not self._start(one):
            self._queue.add(one)

    def advance(self, until: float) -> None:
        """Pods end until then, and others begin in their place."""
        while self._running and self._running[0][0] <= until:
            self._pass(self._running[0][0])
            grown = set()
            while self._running and self._running[0][0] <= self._now:
                _, one = heappop(self._running)
                grown.add(self._cluster.end(one.facts))
                self._learner.gone(one.facts)
            for node in grown:
                self._fragments.changed(node)
            self._queue.try_again(self._start, partial(self._cluster.could_take, grown))
        self._pass(until)

    def _pass(self, until: float) -> None:
        """Time goes by in which nothing changes."""
        self.held_seconds += self._cluster.held * (until - self._now)
        at, to = [100 * (time - self.began) / (self.ends - self.began) for time in (self._now, until)]
        for percent in range(ceil(at), ceil(to)):
            self._points.add(percent, self._cluster.held, self._fragments.amount, self._fragments.idle)
        self._now = until

    def _start(self, one: Waiting) -> bool:
        node = self._cluster.place(one.facts)
        if node is None:
            return False
        self._fragments.changed(node)
        self.waits.append(self._now - one.pod.arrival)
        if one.pod.duration is not None:
            heappush(self._running, (self._now + one.pod.duration, one))
        return True

    def run(self, policy: str, trace: Trace) -> Run:
        waiting = self._queue.all()
        rejected: dict[str, int] = {}
        for one in waiting:
            rejected[class_of(one.pod)] = rejected.get(class_of(one.pod), 0) + 1
        waits = sorted(self.waits + [self.ends - one.pod.arrival for one in waiting])
        allocated = 100 * self.held_seconds / trace.capacity / (self.ends - self.began)
        over_time = OverTime(allocated, sum(waits) / len(waits), waits[ceil(0.95 * len(waits)) - 1], len(waiting))
        return Run(policy, len(trace.pods), rejected, self._points.all(), over_time)


def replay(trace: Trace, policy: str, ranks: Sequence[int], step: Callable[[], None] = lambda: None) -> Run:
    """`step` is called after each pod that came."""
    replayed, pods = _Replay(trace, policy, ranks), Pods()
    for number, pod in enumerate(sorted(trace.pods, key=lambda pod: pod.arrival)):
        replayed.come(Waiting(number, pod, pods.facts(pod, str(number))))
        step()
    return replayed.run(policy, trace)
