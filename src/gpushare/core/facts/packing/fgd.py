"""`fgd`: fragmentation gradient descent (Weng et al., USENIX ATC 2023): where the fragments grow least.

The fragment of a node for a kind of pod is what that pod could not use of the idle GPUs there: parts too small for it,
and everything if it does not fit there at all. The fragment of a node is the mean over the pods that come. Memory of
nodes is left out. The score of a node is a whole number of 0 to 99, so that many nodes are equal: this matters.

Amounts are whole numbers: thousandths of a GPU, times the number of pods that come. So sums are exact in any order.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import eq

from gpushare.core.facts.packing import fragments
from gpushare.core.facts.packing.fragments import may_use
from gpushare.core.facts.packing.gpus import WHOLE, without
from gpushare.core.facts.packing.model import Ask, Choice, Mixture, PodType, View

NAME = "fgd"
_KEPT = 1  # the place of ours in `View.kept`


class Fgd:
    """`pods`: the kinds that it looks at. `count`: how many came of them."""

    def __init__(self, mixture: Mixture) -> None:
        self.pods = fragments.typical(mixture.pods)
        self.count = sum([pod.count for pod in self.pods])
        self._cpus = sorted({pod.ask.cpu for pod in self.pods})
        self._steps = fragments.steps(self.count)
        self._sums = fragments.Sums(self.pods, sum([pod.count for pod in mixture.pods]))
        self._levels: dict[tuple[tuple[str, ...], tuple[int, ...], int], _Level] = {}

    def fragment(self, node: View) -> int:
        """In thousandths of a GPU, times `count`."""
        return self._seen(node).fragment

    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        seen = self._seen(node)
        level, without_pod = self._with_less_cpu(seen, node, ask)
        units, whole, lost_by_gpu, together = ask.units, seen.whole, level.lost, level.together
        gpus, after = [], []
        for gpu, free, total in seen.unequal:
            need = units or total
            if free >= need:
                lost = lost_by_gpu[gpu]
                gpus.append(gpu)
                after.append(without_pod - lost[free] + lost[free - need] - together[whole - (free == total)])
        if not after:
            return None
        if level.several:
            after = [level.fragment(without(ask, node, gpu)) for gpu in gpus]
        before = seen.fragment
        if before in after:
            scores = [
                self._score(ask, node, without(ask, node, gpu), left) for gpu, left in zip(gpus, after, strict=True)
            ]
            return Choice(-max(scores), gpus[scores.index(max(scores))])
        score = bisect_right(self._steps, before - min(after)) - 1
        enough = before - self._steps[score]
        return Choice(-score, next(gpu for gpu, left in zip(gpus, after, strict=True) if left <= enough))

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        level = self._level(node, node.cpu - ask.cpu)
        return -self._score(ask, node, free, level.fragment(free))

    def _score(self, ask: Ask, node: View, free: Sequence[int], after: int) -> int:
        seen = self._seen(node)
        before = seen.fragment
        if before != after or not before:
            return bisect_right(self._steps, before - after) - 1
        left = node.cpu - ask.cpu
        same_kinds_fit = self._level(node, node.cpu) is self._level(node, left)
        if left < 0 or (same_kinds_fit and node.free == tuple(free)):
            return fragments.UNCHANGED
        if seen.as_published is None:
            seen.as_published = self._sums.fragment(node, node.free, node.cpu)
        return fragments.points(seen.as_published - self._sums.fragment(node, free, left))

    def _with_less_cpu(self, seen: "_Seen", node: View, ask: Ask) -> tuple["_Level", int]:
        """What counts once the pod has its CPU, and the fragment then, if it took no GPU."""
        rank = bisect_right(self._cpus, node.cpu - ask.cpu)
        known = seen.with_less_cpu.get(rank)
        if known is None:
            level = self._level(node, node.cpu - ask.cpu)
            known = seen.with_less_cpu[rank] = level, level.in_parts(node.free)
        return known

    def _seen(self, node: View) -> "_Seen":
        seen = node.kept.get(_KEPT)
        if not isinstance(seen, _Seen) or seen.scorer is not self:
            fragment = self._level(node, node.cpu).fragment(node.free)
            seen = node.kept[_KEPT] = _Seen(self, node, fragment)
        return seen

    def _level(self, node: View, cpu: int) -> "_Level":
        key = node.models, node.totals, bisect_right(self._cpus, cpu)
        level = self._levels.get(key)
        if level is None:
            fitting = [pod for pod in self.pods if pod.ask.gpus and pod.ask.cpu <= cpu]
            level = self._levels[key] = _Level(self.count, fitting, node.models, node.totals)
        return level


class _Seen:
    """What is known of a node as it is."""

    __slots__ = ("as_published", "fragment", "scorer", "unequal", "whole", "with_less_cpu")

    def __init__(self, scorer: Fgd, node: View, fragment: int) -> None:
        self.scorer = scorer
        self.fragment = fragment
        self.as_published: float | None = None  # the same, if it was asked for
        self.whole = sum(map(eq, node.free, node.totals))  # GPUs that are free wholly
        first: dict[tuple[int, int, str], int] = {}
        for gpu, alike in enumerate(zip(node.free, node.totals, node.models, strict=True)):
            first.setdefault(alike, gpu)
        self.unequal = [(gpu, free, total) for (free, total, _), gpu in first.items()]  # of GPUs that are alike one
        self.with_less_cpu: dict[int, tuple[_Level, int]] = {}  # by the number of CPU sizes that fit


class _Level:
    """What a node with such GPUs loses, as long as the same kinds of pods have enough CPU there."""

    def __init__(self, count: int, fitting: Sequence[PodType], models: Sequence[str], totals: tuple[int, ...]) -> None:
        self.totals = totals
        gpus = list(zip(models, totals, strict=True))
        singles = [pod for pod in fitting if pod.ask.gpus == 1]
        tables = {alike: _Lost(count, singles, *alike) for alike in gpus}
        self.lost = [tables[alike] for alike in gpus]
        self.several: list[tuple[PodType, Sequence[int]]] = []  # pods of several GPUs, with what they need of each
        whole: list[PodType] = []  # those of them that need all of any GPU: many
        for pod in fitting:
            needs = fragments.needs(pod, models, totals) if pod.ask.gpus > 1 else None
            if needs == totals:
                whole.append(pod)
            elif needs is not None:
                self.several.append((pod, needs))
        self.together = [  # what those of `whole` can use, by the number of GPUs that are free wholly
            free * WHOLE * sum([pod.count for pod in whole if pod.ask.gpus <= free]) for free in range(len(totals) + 1)
        ]

    def in_parts(self, free: Sequence[int]) -> int:
        """Lost for pods of one GPU, and all that is idle for the others."""
        return sum([lost[left] for lost, left in zip(self.lost, free, strict=True)])

    def fragment(self, free: Sequence[int]) -> int:
        fragment: int = self.in_parts(free) - self.together[sum(map(eq, free, self.totals))]
        for pod, needs in self.several:
            gpus = zip(free, self.totals, needs, strict=True)
            able = [WHOLE * left // total for left, total, need in gpus if left >= need]
            if len(able) >= pod.ask.gpus:
                fragment -= pod.count * sum(able)
        return fragment


class _Lost(dict[int, int]):
    """Of a GPU, by its free units: what is lost for pods of one GPU."""

    def __init__(self, count: int, pods: Sequence[PodType], model: str, total: int) -> None:
        super().__init__()
        self._total = total
        users = sorted([(pod.ask.units or total, pod.count) for pod in pods if may_use(pod, model)])
        self._needs = [need for need, _ in users]
        self._cannot = [count - can for can in accumulate([count for _, count in users], initial=0)]

    def __missing__(self, free: int) -> int:
        lost = self[free] = WHOLE * free // self._total * self._cannot[bisect_right(self._needs, free)]
        return lost
