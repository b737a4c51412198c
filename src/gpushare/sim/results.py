"""What a replay measured. Pure.

Load is what came so far, in percent of all GPUs. The figures of one load are the mean over all pods that came there.
What is rounded to two digits, before or after, is as in the published benchmark, so that they can be compared.
"""

from gpushare.core.facts.model import Data
from gpushare.core.facts.packing.gpus import WHOLE
from gpushare.sim.trace import Pod, Trace

MOST_AT_ONCE = 128  # numbers that are added without halving them first
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

    load: int  # where pods come and end: percent of the time
    allocated: float  # of all GPUs
    fragmented: float  # of all GPUs: what the pods of this trace, in their mix, cannot use of what is free
    fragmented_of_free: float


class OverTime(Data, frozen=True):
    """Where pods come and end. Pods that still wait at the end count with the seconds that they waited so far."""

    allocated: float  # percent of all GPUs, the mean over time
    mean_wait: float  # seconds
    p95_wait: float  # seconds
    never_ran: int  # pods that still waited at the end


class Run(Data, frozen=True):
    """One policy, one seed."""

    policy: str
    pods: int
    rejected: dict[str, int]  # by class; with departures: those that still waited at the end
    points: tuple[Point, ...]
    over_time: OverTime | None = None
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
        found[1].append(100 * fragments / self._gpus)
        found[2].append(round(100 * fragments / idle, 2) if idle else 0.0)

    def all(self) -> tuple[Point, ...]:
        return tuple([Point(load, *_means(*found)) for load, found in sorted(self._bins.items())])


def _means(allocated: list[float], fragmented: list[float], of_free: list[float]) -> tuple[float, float, float]:
    return _rounded(allocated), _rounded(fragmented), _sum(of_free) / len(of_free)


def _rounded(values: list[float]) -> float:
    return round(100 * (_sum(values) / len(values))) / 100


def _sum(values: list[float]) -> float:
    """Added in the order in which numpy does it: the published figures have all digits of that."""
    many = len(values)
    if many > MOST_AT_ONCE:
        half = many // 2 - many // 2 % 8
        return _sum(values[:half]) + _sum(values[half:])
    if many < 8:
        return sum(values)
    columns = [0.0] * 8
    rest = many - many % 8
    for i in range(rest):
        columns[i % 8] += values[i]
    a, b, c, d, e, f, g, h = columns
    return sum(values[rest:], ((a + b) + (c + d)) + ((e + f) + (g + h)))
