"""What a replay measured. Pure.

Load is what came so far, in percent of all GPUs. The figures of one load are the mean over all pods that came there,
rounded as in the published benchmark: each of them to two digits, then their mean.
"""

from math import fsum

from gpushare.core.facts.model import Data
from gpushare.core.facts.packing.gpus import WHOLE
from gpushare.sim.trace import Pod, Trace

WITHOUT, PART = "no GPU", "share"


def class_of(pod: Pod) -> str:
    """By what pods are counted that found no place."""
    if not pod.gpus:
        return WITHOUT
    if pod.gpu_memory_mib:
        return PART
    return "1 GPU" if pod.gpus == 1 else f"{pod.gpus} GPUs"


class Point(Data, frozen=True):
    """At one load, all in percent."""

    load: int
    allocated: float  # of all GPUs
    fragmented: float  # of all GPUs: what the pods of this trace, in their mix, cannot use of what is free
    fragmented_of_free: float


class Waits(Data, frozen=True):
    """With departures. All in seconds."""

    mean: float
    p95: float
    never_ran: int  # pods that still waited at the end


class Run(Data, frozen=True):
    """One policy, one seed."""

    policy: str
    pods: int
    rejected: dict[str, int]  # by class; with departures: those that still waited at the end
    points: tuple[Point, ...] = ()
    mean_allocated: float = 0.0  # percent, over time
    waits: Waits | None = None
    seed: int = 0
    cpu_seconds: float = 0.0


class Points:
    """Figures of each event, gathered to points."""

    def __init__(self, trace: Trace) -> None:
        self._capacity, self._gpus = trace.capacity, WHOLE * trace.gpus
        self._amount, self._arrived = trace.amounts(), 0.0
        self._bins: dict[int, tuple[list[float], list[float], list[float]]] = {}

    def came(self, pod: Pod) -> int:
        """The load with one more pod, in percent, as a whole number."""
        self._arrived += self._amount(pod)
        return round(100 * self._arrived / self._capacity)

    def add(self, load: int, held: int, fragments: float, idle: int) -> None:
        found = self._bins.get(load)
        if found is None:
            found = self._bins[load] = ([], [], [])
        found[0].append(round(100 * held / self._capacity, 2))
        found[1].append(round(100 * fragments / self._gpus, 2))
        found[2].append(round(100 * fragments / idle, 2) if idle else 0.0)

    def all(self) -> tuple[Point, ...]:
        return tuple([Point(load, *[_mean(values) for values in found]) for load, found in sorted(self._bins.items())])


def _mean(values: list[float]) -> float:
    return round(100 * (fsum(values) / len(values))) / 100
