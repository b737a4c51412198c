"""What `vrc` expects of the pods to come, learned from those that came: CPU and memory for each GPU, what a part of a
GPU is worth, which GPUs are sought after, and how often several free GPUs of one node are needed together.

Amounts of GPU are in GPUs of the mean size: a GPU is worth what it has of the units that people ask for.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from gpushare.core.facts.packing import cutting_stock
from gpushare.core.facts.packing.model import GpuClass, Mixture, PodType

SIZES = 14  # of shares that are looked at: those with most demand
SMALLEST = 30  # as a part of a GPU: smaller shares fit everywhere
PLAIN = 0.5  # of the value of what is left is its amount, the rest is what the best shares in it are worth
EVENLY = 50  # pods are taken to have come before, which ask for each model, and for each size of GPU, as often
FEW = 100  # pods: after so many, half of the CPU that they ask is believed


class Worth(dict[int, float]):
    """What so many free units of a GPU are worth, in GPUs of the mean size. Each amount is worked out once."""

    def __init__(self, total: int, whole: float, steps: Sequence[int], values: Sequence[float]) -> None:
        self.total, self.whole = total, whole  # what the whole GPU is worth
        self._steps, self._values = steps, values

    def __missing__(self, units: int) -> float:
        best = 1.0 if units >= self.total else self._values[bisect_right(self._steps, units) - 1]
        self[units] = found = self.whole * (PLAIN * units / self.total + (1 - PLAIN) * best)
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
    gpus: float  # that one such pod takes, of the mean size
    usable: frozenset[int]  # positions of the classes that it may use
    able: int  # GPUs of these classes


class Outlook:
    def __init__(self, mixture: Mixture) -> None:
        self._classes = mixture.gpus
        self._places = {(gpu.model, gpu.total): at for at, gpu in enumerate(mixture.gpus)}
        self.gpus = sum([each.count for each in mixture.gpus])
        self._mean = sum([each.total * each.count for each in mixture.gpus]) / self.gpus if self.gpus else 0.0
        self._seen = [seen for kind in mixture.pods if (seen := self._look(kind)) is not None]
        self.demand = sum([seen.kind.count * seen.gpus for seen in self._seen])
        self.cpu = self._for_each_gpu([kind.ask.cpu for kind, *_ in self._seen])
        self.memory = self._for_each_gpu([kind.ask.memory for kind, *_ in self._seen])
        squares = [kind.count * (kind.ask.cpu - self.cpu * gpus) ** 2 for kind, gpus, *_ in self._seen]
        self.spread = sqrt(sum(squares) / self.demand) if self.demand else 0.0
        self.cpu_of_cluster = mixture.cpu / self.gpus if self.gpus else 0.0  # for each GPU
        self.cpu_load = self._cpu_load(mixture.pods)
        self._choosy = [seen for seen in self._seen if len(seen.usable) < len(self._classes)]  # may not use every GPU
        self._evenly = self._by_size()
        self._worths: dict[int, Worth] = {}
        for each in mixture.gpus:
            self.worth(each.total)

    def _look(self, kind: PodType) -> _Seen | None:
        ask = kind.ask
        if not ask.gpus:
            return None
        if not self.gpus:
            return _Seen(kind, float(ask.gpus), frozenset(), 0)
        usable = [at for at, gpu in enumerate(self._classes) if _may_use(kind, gpu)]
        count = sum([self._classes[at].count for at in usable])
        if not count:
            return None
        units = ask.units or sum([self._classes[at].total * self._classes[at].count for at in usable]) / count
        return _Seen(kind, ask.gpus * units / self._mean, frozenset(usable), count)

    def _for_each_gpu(self, amounts: Sequence[int]) -> float:
        total = sum([seen.kind.count * amount for seen, amount in zip(self._seen, amounts, strict=True)])
        return total / self.demand if self.demand else 0.0

    def _cpu_load(self, pods: Sequence[PodType]) -> float:
        """How much of all CPU the pods ask once they use all GPUs. Of a few pods it is an uncertain guess: less."""
        if not self.demand or not self.cpu_of_cluster:
            return 0.0
        count = sum([kind.count for kind in pods])
        asked = sum([kind.count * kind.ask.cpu for kind in pods]) / self.demand
        return asked / self.cpu_of_cluster * count / (count + FEW)

    def worth(self, total: int) -> Worth:
        """Of parts of a GPU of that size."""
        if total not in self._worths:
            whole = total / self._mean if self._mean else 1.0
            self._worths[total] = Worth(total, whole, *self._cut(total))
        return self._worths[total]

    def _cut(self, total: int) -> tuple[list[int], list[float]]:
        counts: dict[int, int] = {}
        for kind, *_ in self._seen:
            if total <= kind.ask.units * SMALLEST and kind.ask.units < total:
                counts[kind.ask.units] = counts.get(kind.ask.units, 0) + kind.count * kind.ask.gpus
        sizes = sorted(counts, key=lambda size: (-counts[size] * size, size))[:SIZES]
        if not sizes:
            return [0], [0.0]
        return cutting_stock.worth(
            total, sizes, cutting_stock.prices(total, sizes, [float(counts[size]) for size in sizes])
        )

    def price(self, model: str, total: int) -> float:
        """Of a GPU that not every pod may use: how much those that may want it, for each of the GPUs they may use."""
        mine = self._places.get((model, total))
        return 0.0 if mine is None else self._price_of_model(mine) + self._price_of_size(mine)

    def _price_of_model(self, mine: int) -> float:
        """By pods that name models."""
        choosy = [seen for seen in self._choosy if seen.kind.models is not None]
        count = sum([seen.kind.count for seen in choosy])
        if not count:
            return 0.0
        share = sum([seen.kind.count * seen.gpus for seen in choosy]) / self.demand
        evenly = share * self.gpus / len(self._classes) / self._classes[mine].count
        return (count * self._asked(choosy, mine) + EVENLY * evenly) / (count + EVENLY)

    def _price_of_size(self, mine: int) -> float:
        """By pods that are too large for other GPUs."""
        asked = self._asked([seen for seen in self._choosy if seen.kind.models is None], mine)
        count = sum([seen.kind.count for seen in self._seen])
        return (count * asked + EVENLY * self._evenly[self._classes[mine].total]) / (count + EVENLY)

    def _asked(self, choosy: Sequence[_Seen], mine: int) -> float:
        """How much of a GPU of this class such pods want."""
        wanted = [kind.count * gpus / able for kind, gpus, usable, able in choosy if mine in usable]
        return sum(wanted) / self.demand * self.gpus if wanted else 0.0

    def _by_size(self) -> dict[int, float]:
        """How much of a GPU pods would want, by its size, if as many needed each size. Those that need no more than the
        smallest may use every GPU."""
        sizes: dict[int, int] = {}
        for each in sorted(self._classes, key=lambda each: each.total):
            sizes[each.total] = sizes.get(each.total, 0) + each.count
        wanted, asked, able = {}, 0.0, self.gpus
        for size, count in sizes.items():
            if able < self.gpus:
                asked += self.gpus / len(sizes) / able
            wanted[size] = asked
            able -= count
        return wanted

    def together(self, model: str, total: int, free: int) -> Together:
        """Pods of several GPUs that so many free ones of this class could serve."""
        able = sorted(
            [
                (kind.ask.cpu, kind.count * kind.ask.gpus**2 / self.demand)
                for kind, *_ in self._seen
                if 2 <= kind.ask.gpus <= free and _may_use(kind, GpuClass(model, total, 1))
            ]
        )
        weights = [0.0]
        for _, weight in able:
            weights.append(weights[-1] + weight)
        return Together([cpu for cpu, _ in able], weights)


def _may_use(kind: PodType, gpu: GpuClass) -> bool:
    return kind.ask.units <= gpu.total and (kind.models is None or gpu.model in kind.models)
