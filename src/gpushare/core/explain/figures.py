"""How much of what is free can be used, and by pods of which size: the cluster in a few numbers, for metrics.

Pure. Free memory in pieces that are too small for what people ask is the fragmentation that matters. With many nodes
this takes long, so it is made in short steps; the result is of no single instant then.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from gpushare.core.facts import names, units
from gpushare.core.facts.model import Data, Pin, PodFacts, Request
from gpushare.core.ledger.holding import State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement.room import Room
from gpushare.core.steps import Steps, finish

STEP_NODES: Final = 50
STEP_PODS: Final = 100  # a pod may have many containers
STEP_PIECES: Final = 2_000
GIB: Final = 1 << 30
FIXED: Final = {f"{size}GiB": size * GIB for size in (1, 4, 8, 16, 40)}
PERCENTILES: Final = {"p50": 50, "p90": 90}  # of what pods ask on one GPU
WHOLE: Final = "whole"  # a GPU that nobody uses

Piece = tuple[str, int, int]  # unit, free units of one GPU, and how many one container may ask there; 0: any number


class Size(Data, frozen=True):
    """`fitting`: pods of this size that still fit. `unusable`: the part of what is free that they cannot use, 0 to 1;
    None: nothing is free."""

    fitting: int
    unusable: float | None


class Figures(Data, frozen=True):
    sizes: Mapping[str, Size]  # by name
    unplaced: int  # bound pods whose GPU is not known
    free: int = 0  # bytes that may be given out
    bytes: Mapping[str, int] = {}  # of each size but `whole`


class _Sums:
    """What one pass over all nodes adds up."""

    def __init__(self) -> None:
        self.pieces: Counter[Piece] = Counter()
        self.asked: Counter[int] = Counter()  # bytes on one GPU, of pods that run or wait
        self.free = self.empty = self.empty_bytes = self.largest = self.unplaced = 0
        self.units: Counter[str] = Counter()

    def add(self, state: NodeState) -> None:
        if state.room is not None and state.room.facts.pin is not Pin.NVIDIA:
            self._add_room(state.room)
        if state.facts is None:
            return  # it shares no GPU any more, or not yet: that says nothing about how its pods were bound
        size = units.BYTES_IN[state.facts.unit]
        for holding in state.holdings():
            if holding.state is State.BOUND and not holding.charges and not holding.pod.finished:
                self.unplaced += 1
            for charge in holding.charges or ():
                if charge.units:  # a whole GPU that has lost its memory is charged nothing
                    self.asked[charge.units * size] += 1

    def _add_room(self, room: Room) -> None:
        facts, size = room.facts, units.BYTES_IN[room.facts.unit]
        self.units[facts.unit] += 1
        self.largest = max(self.largest, room.largest * size)
        if facts.blocked is not None:
            return
        self.free += room.sum_free * size
        for gpu, free, empty in zip(facts.gpus, room.free, room.empty, strict=True):
            if gpu.healthy and free:
                self.pieces[facts.unit, free, facts.limit] += 1
                if empty:
                    self.empty += 1
                    self.empty_bytes += free * size

    def add_waiting(self, pod: PodFacts) -> None:
        if isinstance(pod.request, Request):
            unit: str = pod.request.unit or next((unit for unit, _ in self.units.most_common(1)), names.MIB)
            for share in pod.request.shares:
                each = share.slot_bytes or share.each * units.BYTES_IN[unit]
                if each:
                    self.asked[each] += share.gpus


def counting(ledger: Ledger, waiting: Iterable[PodFacts]) -> Steps[Figures]:
    """`waiting`: pods that are not bound."""
    sums = _Sums()
    for number, name in enumerate(list(ledger.node_names())):
        if number % STEP_NODES == 0:
            yield
        state = ledger.node(name)
        if state is not None:  # it may be gone since
            sums.add(state)
    for number, pod in enumerate(list(waiting)):
        if number % STEP_PODS == 0:
            yield
        if ledger.holding(pod.uid) is None:  # else it was counted with what it holds
            sums.add_waiting(pod)
    sizes: dict[str, Size] = {}
    of_one = dict(_sizes(sums))
    for name, size in of_one.items():
        fitting = yield from _fitting(sums.pieces, size)
        sizes[name] = Size(fitting, _unusable(fitting * size, sums.free))
    if sums.largest:
        sizes[WHOLE] = Size(sums.empty, _unusable(sums.empty_bytes, sums.free))
    return Figures(sizes, sums.unplaced, sums.free, of_one)


def of_node(state: NodeState, sizes: Iterable[int]) -> tuple[list[int], int]:
    """How many pods of each of these sizes, in bytes, still fit on a node; and how many of its GPUs nobody uses."""
    sums = _Sums()
    sums.add(state)
    return [finish(_fitting(sums.pieces, size)) for size in sizes], sums.empty


def _sizes(sums: _Sums) -> Iterator[tuple[str, int]]:
    """In bytes. Sizes that no GPU here has are left out, unless they are asked for."""
    for name, size in FIXED.items():
        if size <= sums.largest:
            yield name, size
    for name, percent in PERCENTILES.items():
        if sums.asked and sums.largest:
            yield name, percentile(sums.asked, percent)


def percentile(counts: Mapping[int, int], percent: int) -> int:
    """The smallest value that is not exceeded by so many of all."""
    rank, seen = -(-sum(counts.values()) * percent // 100), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    raise ValueError("no values")


def _fitting(pieces: Mapping[Piece, int], size: int) -> Steps[int]:
    fitting, rows = 0, iter(list(pieces.items()))
    while part := list(islice(rows, STEP_PIECES)):
        for (unit, free, limit), count in part:
            need = units.in_unit(size, unit)
            if not limit or need <= limit:
                fitting += free // need * count
        yield
    return fitting


def _unusable(usable: int, free: int) -> float | None:
    return max(1 - usable / free, 0.0) if free else None
