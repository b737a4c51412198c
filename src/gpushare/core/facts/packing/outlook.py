"""What `vrc` expects of the pods to come, learned from those that came: CPU and memory for each GPU, what a part of a
GPU is worth, which GPUs are sought after, and how often several free GPUs of one node are needed together.

Amounts of GPU are in GPUs. A pod that may use GPUs of several sizes counts as the mean part that it takes of them.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import log, sqrt
from typing import NamedTuple

from gpushare.core.facts.packing import cutting_stock
from gpushare.core.facts.packing.model import GpuClass, Mixture, PodType

SIZES = 14  # of shares that are looked at: those with most demand
SMALLEST = 10  # as a part of a GPU: smaller shares fit everywhere
TRIES = 6  # demands that differ a little: the prices are their mean


def _noise() -> Iterator[float]:
    """Numbers around 1 that are always the same: each the mean of 16 that are spread exponentially."""
    state = 1
    while True:
        total = 0.0
        for _ in range(16):
            state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            total -= log(((state >> 33) + 1) / (1 << 31))
        yield total / 16


_NUMBERS = _noise()
NOISE = tuple([tuple([next(_NUMBERS) for _ in range(SIZES)]) for _ in range(TRIES)])


class Worth(dict[int, float]):
    """What so many free units of a GPU are worth: from 0 to 1. Looked up in the steps once for each amount."""

    def __init__(self, steps: Sequence[int], values: Sequence[float]) -> None:
        self._steps, self._values = steps, values

    def __missing__(self, units: int) -> float:
        self[units] = found = self._values[bisect_right(self._steps, units) - 1]
        return found


class Together(NamedTuple):
    """Pods of several GPUs that a node with so many free GPUs could take: by the CPU that they ask, in rising order,
    and the weight of all up to each."""

    cpus: list[int]
    weights: list[float]

    def weight(self, cpu: int) -> float:
        return self.weights[bisect_right(self.cpus, cpu)]


class _Seen(NamedTuple):
    kind: PodType
    gpus: float  # that one such pod takes
    usable: frozenset[int]  # positions of the classes that it may use


class Outlook:
    def __init__(self, mixture: Mixture) -> None:
        self._classes = mixture.gpus
        self.gpus = sum([each.count for each in mixture.gpus])
        self._seen = [seen for kind in mixture.pods if (seen := self._look(kind)) is not None]
        self.demand = sum([seen.kind.count * seen.gpus for seen in self._seen])
        self.cpu = self._for_each_gpu([kind.ask.cpu for kind, _, _ in self._seen])
        self.memory = self._for_each_gpu([kind.ask.memory for kind, _, _ in self._seen])
        squares = [kind.count * (kind.ask.cpu - self.cpu * gpus) ** 2 for kind, gpus, _ in self._seen]
        self.spread = sqrt(sum(squares) / self.demand) if self.demand else 0.0
        self.cpu_of_cluster = mixture.cpu / self.gpus if self.gpus else 0.0  # for each GPU
        everything = sum([kind.count * kind.ask.cpu for kind in mixture.pods])
        wanted = everything / self.demand if self.demand else 0.0
        self.cpu_load = wanted / self.cpu_of_cluster if self.cpu_of_cluster else 0.0
        self._worths: dict[int, Worth] = {}
        for each in mixture.gpus:
            self.worth(each.total)

    def _look(self, kind: PodType) -> _Seen | None:
        ask = kind.ask
        if not ask.gpus:
            return None
        if not self._classes:
            return _Seen(kind, float(ask.gpus), frozenset())
        usable = [at for at, gpu in enumerate(self._classes) if _may_use(kind, gpu)]
        count = sum([self._classes[at].count for at in usable])
        if not count:
            return None
        parts = [(ask.units or gpu.total) / gpu.total * gpu.count for gpu in map(self._classes.__getitem__, usable)]
        return _Seen(kind, ask.gpus * sum(parts) / count, frozenset(usable))

    def _for_each_gpu(self, amounts: Sequence[int]) -> float:
        total = sum([seen.kind.count * amount for seen, amount in zip(self._seen, amounts, strict=True)])
        return total / self.demand if self.demand else 0.0

    def worth(self, total: int) -> Worth:
        """Of parts of a GPU of that size."""
        if total not in self._worths:
            self._worths[total] = self._cut(total)
        return self._worths[total]

    def _cut(self, total: int) -> Worth:
        counts: dict[int, int] = {}
        for kind, _, _ in self._seen:
            if total <= kind.ask.units * SMALLEST and kind.ask.units < total:
                counts[kind.ask.units] = counts.get(kind.ask.units, 0) + kind.count * kind.ask.gpus
        sizes = sorted(counts, key=lambda size: (-counts[size] * size, size))[:SIZES]
        if not sizes:
            return Worth([0, total], [0.0, 1.0])
        demands = [[counts[size] * noise for size, noise in zip(sizes, row, strict=False)] for row in NOISE]
        steps, values = cutting_stock.worth(total, sizes, cutting_stock.prices(total, sizes, demands))
        most = max(values[-1], 1.0)
        return Worth([*steps, total], [*[value / most for value in values], 1.0])

    def price(self, model: str, total: int) -> float:
        """Of a GPU that not every pod may use: how much those that may want it, for each of the GPUs they may use."""
        price = 0.0
        for kind, gpus, usable in self._seen:
            if len(usable) < len(self._classes) and any(self._is(at, model, total) for at in usable):
                theirs = sum([self._classes[at].count for at in usable])
                price += kind.count * gpus / self.demand * self.gpus / theirs
        return price

    def _is(self, at: int, model: str, total: int) -> bool:
        return (self._classes[at].model, self._classes[at].total) == (model, total)

    def together(self, model: str, total: int, free: int) -> Together:
        """Pods of several GPUs that so many free ones of this class could serve."""
        able = sorted(
            [
                (kind.ask.cpu, kind.count * kind.ask.gpus**2 / self.demand)
                for kind, _, _ in self._seen
                if 2 <= kind.ask.gpus <= free and _may_use(kind, GpuClass(model, total, 1))
            ]
        )
        weights = [0.0]
        for _, weight in able:
            weights.append(weights[-1] + weight)
        return Together([cpu for cpu, _ in able], weights)


def _may_use(kind: PodType, gpu: GpuClass) -> bool:
    return kind.ask.units <= gpu.total and (kind.models is None or gpu.model in kind.models)
