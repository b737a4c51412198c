"""`vrc`, the value of remaining capacity: a pod goes where what is left of the node loses the least value.

What is left of a GPU is worth what the best combination of expected shares could make of it (`cutting_stock`). Idle
GPUs are worth less where CPU or memory of the node will not suffice for the pods that they could serve, and more where
several are free together for pods that need that. GPUs that only some pods may use have a price for all.
"""

from collections.abc import Sequence
from math import erf, exp, pi, sqrt
from typing import NamedTuple

from gpushare.core.facts.packing.model import UNKNOWN, Ask, Choice, Mixture, View
from gpushare.core.facts.packing.outlook import Outlook, Together, Worth

SHORTAGE = 1.25  # what a GPU costs that CPU or memory will not suffice for, in GPUs
NEEDED = 0.8  # of the CPU and memory that GPUs had so far: pods that need less come too
UNCERTAIN = 0.3  # of the spread of the CPU that pods ask
EMPTIER = 0.03 / 8  # for each idle GPU that stays on a node: so nodes come free, and small ones fill first
TIGHT, TIGHTEST = 0.9, 0.25  # if pods ask more than this part of all CPU, nodes with little CPU left are preferred
SOUGHT = 0.5  # of the price of GPUs that only some pods may use
TOGETHER = 0.03  # for free GPUs of one node that pods of several GPUs could use

_KEPT = 0  # the place of ours in `View.kept`
_PEAK, _ROOT = 1 / sqrt(2 * pi), 1 / sqrt(2)  # of the normal distribution
_STEPS = 1e9  # of keys: values that differ by less are equal


class _Class(NamedTuple):
    """GPUs of one model and size."""

    worth: Worth
    price: float  # to use one up, apart from its worth
    together: list[Together]  # by the number of free ones


class _Gpu(NamedTuple):
    """A GPU of a node as it is. All that does not depend on the pod is worked out once: a pod looks at many."""

    units: int  # free
    total: int
    position: int
    others: float  # what the other GPUs of the node are worth
    worth: Worth
    price: float
    free: int  # whole GPUs of the node, if some of this one is taken


class _Known(NamedTuple):
    """Of a node as it is."""

    scorer: "Vrc"
    idle: float  # GPUs, by worth
    value: float
    unused: float  # GPUs, by memory
    free: int  # whole ones
    gpus: list[_Gpu]  # that differ, the fullest first
    together: list[Together]


class Vrc:
    def __init__(self, mixture: Mixture) -> None:
        self._outlook = outlook = Outlook(mixture)
        self._classes: dict[tuple[str, int], _Class] = {}
        self._cpu, self._memory = NEEDED * outlook.cpu, NEEDED * outlook.memory
        self._no_cpu = SHORTAGE / self._cpu if self._cpu else 0.0
        self._no_memory = SHORTAGE / self._memory if self._memory else 0.0
        self._spread = UNCERTAIN * outlook.spread
        tight = min(max(outlook.cpu_load - TIGHT, 0.0), TIGHTEST)
        self._tight = tight / outlook.cpu_of_cluster if tight else 0.0

    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        known = node.kept.get(_KEPT)
        if not isinstance(known, _Known) or known.scorer is not self:
            known = self._known(node)
        cpu, memory, asked, together = node.cpu - ask.cpu, node.memory - ask.memory, ask.units, known.together
        value_of, best, where = self._value, None, -1
        for units, total, gpu, others, worth, price, free in known.gpus:
            need = asked or total
            if units >= need:
                value = value_of(others + worth[units - need], cpu, memory, together, free) - need / total * price
                if best is None or value > best:
                    best, where = value, gpu
        if best is None:
            return None
        return Choice(self._key(best - known.value - EMPTIER * known.unused, cpu), where)

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        known = self._known(node)
        idle, whole, price = known.idle, known.free, EMPTIER * known.unused
        for gpu, units in enumerate(free):
            before, total = node.free[gpu], node.totals[gpu]
            if units != before:
                kind = self._class(node.models[gpu], total)
                idle += kind.worth[units] - kind.worth[before]
                whole -= before == total
                price += (before - units) / total * kind.price
        cpu = node.cpu - ask.cpu
        value = self._value(idle, cpu, node.memory - ask.memory, known.together, whole)
        return self._key(value - known.value - price, cpu)

    def _key(self, gain: float, cpu: int) -> int:
        if self._tight and cpu < UNKNOWN / 2:
            gain -= self._tight * cpu
        return int(-gain * _STEPS)

    def _value(self, idle: float, cpu: int, memory: int, together: list[Together], free: int) -> float:
        if idle <= 0.0:
            return 0.0
        value, lack, spread = idle, self._cpu * idle - cpu, self._spread * sqrt(idle)
        if lack > 4 * spread:
            value -= self._no_cpu * lack
        elif lack > -4 * spread:
            z = lack / spread
            value -= self._no_cpu * spread * (_PEAK * exp(-z * z / 2) + z * (0.5 + 0.5 * erf(z * _ROOT)))
        lack = self._memory * idle - memory
        if lack > 0:
            value -= self._no_memory * lack
        if free > 1:
            value += TOGETHER * together[free].weight(cpu)
        return value

    def _known(self, node: View) -> _Known:
        known = node.kept.get(_KEPT)
        if isinstance(known, _Known) and known.scorer is self:
            return known
        idle, unused, free = 0.0, 0.0, 0
        differ: dict[tuple[int, int, str], tuple[int, _Class]] = {}
        for gpu, (units, total, model) in enumerate(zip(node.free, node.totals, node.models, strict=True)):
            kind = self._class(model, total)
            idle += kind.worth[units]
            unused += units / total * kind.worth.whole
            free += units == total
            if units:
                differ.setdefault((units, total, model), (gpu, kind))
        gpus = [
            _Gpu(units, total, gpu, idle - kind.worth[units], kind.worth, kind.price, free - (units == total))
            for (units, total, _), (gpu, kind) in sorted(differ.items())
        ]
        together = self._together(node, free)
        value = self._value(idle, node.cpu, node.memory, together, free)
        node.kept[_KEPT] = known = _Known(self, idle, value, unused, free, gpus, together)
        return known

    def _class(self, model: str, total: int) -> _Class:
        kind = self._classes.get((model, total))
        if kind is None:
            worth = self._outlook.worth(total)
            price = (SOUGHT * self._outlook.price(model, total) - EMPTIER) * worth.whole
            self._classes[model, total] = kind = _Class(worth, price, [])
        return kind

    def _together(self, node: View, free: int) -> list[Together]:
        """For as many free GPUs as the node has, of the class of its first."""
        if not node.totals:
            return []
        tables = self._class(node.models[0], node.totals[0]).together
        while len(tables) <= free:
            tables.append(self._outlook.together(node.models[0], node.totals[0], len(tables)))
        return tables
