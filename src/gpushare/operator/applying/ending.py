"""Pods of ours that have to end before more is taken from them: a program that ends puts things in order, and needs
its rights for that."""

import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gpushare.operator.seeing.sight import Pods
from gpushare.operator.status.facts import PodFacts

PATIENCE: Final = datetime.timedelta(seconds=30)  # after a pod should be gone; its node is dead then


class Ending:
    def __init__(self, pods: Pods, now: Callable[[], datetime.datetime]) -> None:
        self._pods, self._now = pods, now

    def running(self) -> Iterator[PodFacts]:
        """All that may still do something."""
        return (pod for pod in self._pods.found.values() if not pod.ends or self._overdue_in(pod) > 0)

    def of(self, component: str, workloads: Iterable[str] = ()) -> bool:
        """Whether pods of this component still run, beside those of workloads that stay."""
        stay = tuple(f"{name}-" for name in workloads)
        return any(pod.component == component and not pod.name.startswith(stay) for pod in self.running())

    def later(self) -> float | None:
        """In so many seconds another look is due, though nothing may change until then."""
        waits = [self._overdue_in(pod) for pod in self._pods.found.values() if pod.ends]
        return min((wait for wait in waits if wait > 0), default=None)

    def _overdue_in(self, pod: PodFacts) -> float:
        due = datetime.datetime.fromisoformat(pod.ends) + PATIENCE
        return (due - self._now()).total_seconds()
