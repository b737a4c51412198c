"""Fragments as the publication of `fgd` counts them: which kinds of pods count, what points a change is worth, and how
it rounds.

The published program adds floating point numbers. Where a pod leaves the fragment as it was, but for other reasons than
before, its two sums may differ in the last digit, and the node gets a point less. Without that its results could not be
compared digit by digit, so `Sums` adds in the same order.
"""

from collections.abc import Sequence
from math import ceil, exp, log

from gpushare.core.facts.packing.gpus import WHOLE
from gpushare.core.facts.packing.model import Ask, PodType, View

TYPICAL = 95  # per cent of the pods that come: the most frequent kinds. The others are not looked at
MOST_KINDS = 300  # of them: where hardly two pods ask the same, each would cost time at each node
UNCHANGED = 50  # points


def typical(pods: Sequence[PodType]) -> list[PodType]:
    """The most frequent kinds, until they are enough. Kinds that differ in memory only are one."""
    kinds: dict[tuple[object, ...], PodType] = {}
    for pod in pods:
        ask, models = pod.ask, pod.written or "|".join(sorted(pod.models or ()))
        # Its order decides between kinds that came equally often. A whole GPU is more than any units.
        kind = ask.cpu, ask.gpus > 0 and not ask.units, ask.units, ask.gpus, models
        count = pod.count + (kinds[kind].count if kind in kinds else 0)
        kinds[kind] = PodType(Ask(ask.cpu, 0, ask.gpus, ask.units), count, pod.models)
    enough, came, chosen = TYPICAL * sum([pod.count for pod in pods]), 0, list[PodType]()
    for _, pod in sorted(kinds.items(), key=lambda item: (item[1].count, item[0]), reverse=True):
        if 100 * came >= enough or len(chosen) == MOST_KINDS:
            break
        chosen.append(pod)
        came += pod.count
    return chosen


def may_use(pod: PodType, model: str) -> bool:
    return pod.models is None or model in pod.models


def needs(pod: PodType, models: Sequence[str], totals: Sequence[int]) -> tuple[int, ...] | None:
    """What a pod needs of each of these GPUs: more than there is, if it may not use it. None: it may use none."""
    if not pod.ask.gpus:
        return ()
    if not any(may_use(pod, model) for model in models):
        return None
    gpus = zip(models, totals, strict=True)
    return tuple([pod.ask.units or total if may_use(pod, model) else total + 1 for model, total in gpus])


def points(less: float) -> int:
    """Of a node whose fragment becomes so much less, in thousandths of a GPU: a logistic curve."""
    return int(1 / (1 + exp(-less / WHOLE)) * 100)


def steps(count: int) -> list[int]:
    """How much less the fragment has to be for 0, 1, 2 ... 99 points, times the number of pods."""
    found = [-(1 << 80)]
    for wanted in range(1, 100 if count else 0):
        step = ceil(count * WHOLE * log(wanted / (100 - wanted)))
        while points((step - 1) / count) >= wanted:
            step -= 1
        while points(step / count) < wanted:
            step += 1
        found.append(step)
    return found


class Sums:
    """`pods`: those that are typical, out of `came`."""

    def __init__(self, pods: Sequence[PodType], came: int) -> None:
        typical = sum([pod.count for pod in pods])
        self._shares = [(pod, pod.count / came / (typical / came)) for pod in pods]
        self._rows: dict[tuple[object, object], list[_Row]] = {}

    def fragment(self, node: View, free: Sequence[int], cpu: int) -> float:
        """Of a node where GPUs and CPU are left like this, in thousandths of a GPU."""
        parts = [WHOLE * left // total for left, total in zip(free, node.totals, strict=True)]
        idle, usable = sum(parts), dict[tuple[int, ...], tuple[int, int]]()
        lacks_both = lacks_gpu = lacks_cpu = asks_none = asks_none_lacks_cpu = wrong_model = 0.0
        for share, cpu_asked, gpus_asked, needs in self._rows_of(node):
            if needs is None:
                wrong_model += share * idle
                continue
            if not gpus_asked:
                if cpu >= cpu_asked:
                    asks_none += share * idle
                else:
                    asks_none_lacks_cpu += share * idle
                continue
            if needs not in usable:
                able = [part for part, left, need in zip(parts, free, needs, strict=True) if left >= need]
                usable[needs] = len(able), sum(able)
            gpus, amount = usable[needs]
            if cpu >= cpu_asked:
                lacks_gpu += share * (idle - amount if gpus >= gpus_asked else idle)
            elif gpus >= gpus_asked:
                lacks_cpu += share * idle
            else:
                lacks_both += share * idle
        return lacks_both + lacks_gpu + lacks_cpu + asks_none + asks_none_lacks_cpu + wrong_model

    def _rows_of(self, node: View) -> "list[_Row]":
        alike = node.models, node.totals
        if alike not in self._rows:
            self._rows[alike] = [(share, pod.ask.cpu, pod.ask.gpus, needs(pod, *alike)) for pod, share in self._shares]
        return self._rows[alike]


_Row = tuple[float, int, int, tuple[int, ...] | None]
"""For nodes with the same GPUs, of a kind of pod: its share of all pods, CPU, GPUs, what it needs of each GPU."""
