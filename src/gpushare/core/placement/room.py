"""A node at one instant: what is free on each of its GPUs, units of memory and MPS slots.

Pure. The ledger makes a new room whenever something changes. Whether a request fits is decided on rooms.
The free units of an unhealthy GPU are in `free`, but not in `rising` and `sum_free`, by which `fit` answers.

What happens next: kube-scheduler asks about a pod (`core/scheduling/life.py`), and `core/placement/fit.py` compares it
with the rooms.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gpushare.core.facts.model import Charge, Data, NodeFacts, Pin


class Taken:
    """What is taken of each GPU of a node, by position: units of memory, and MPS slots."""

    __slots__ = ("slots", "units")

    def __init__(self, units: list[int], slots: list[int]) -> None:
        self.units, self.slots = units, slots

    @staticmethod
    def nothing(gpus: int) -> "Taken":
        return Taken([0] * gpus, [0] * gpus)

    def add(self, charges: Iterable[Charge], sign: int = 1) -> None:
        for gpu, units, slots in charges:
            self.units[gpu] += sign * units
            self.slots[gpu] += sign * slots


class Room(Data, frozen=True):
    """A node at one instant: what is free on each GPU. Never changed."""

    facts: NodeFacts
    free: tuple[int, ...]  # by position, never negative; unhealthy GPUs included
    free_slots: tuple[int, ...]  # the same for MPS slots; a slot is of use only with free units
    empty: tuple[bool, ...]  # no pod holds anything there
    rising: tuple[int, ...]  # free units of the healthy GPUs, smallest first
    sum_free: int
    largest: int  # the size of the largest GPU, healthy or not
    picture: tuple[int, ...]  # everything that decides what fits, without names: equal pictures, equal answers

    @staticmethod
    def of(facts: NodeFacts, used: Sequence[int], used_slots: Sequence[int] = ()) -> "Room":
        """`used_slots`: empty if none is."""
        slots = (facts.slots,) * len(facts.gpus)
        if used_slots and facts.slots:
            slots = tuple([max(facts.slots - taken, 0) for taken in used_slots])
        free, rising, largest = [], [], 0
        for gpu, taken in zip(facts.gpus, used, strict=True):  # one loop: this is done at each change
            total = gpu.total
            units = total - taken if taken < total else 0
            free.append(units)
            if gpu.healthy:
                rising.append(units)
            if total > largest:
                largest = total
        rising.sort()
        empty = tuple([not taken for taken in used])
        picture = _picture(facts, free, slots, empty)
        return Room(facts, tuple(free), slots, empty, tuple(rising), sum(rising), largest, picture)

    def healed(self) -> "Room":
        """The same node if all its GPUs were healthy."""
        gpus = tuple([msgspec.structs.replace(gpu, healthy=True) for gpu in self.facts.gpus])
        facts = msgspec.structs.replace(self.facts, gpus=gpus, blocked=None)
        rising, picture = tuple(sorted(self.free)), _picture(facts, self.free, self.free_slots, self.empty)
        return Room(facts, self.free, self.free_slots, self.empty, rising, sum(self.free), self.largest, picture)

    def with_slots(self, slots: int) -> "Room":
        """The same node if each GPU had so many free MPS slots. An MPS share takes as much memory as before."""
        each = (slots,) * len(self.free)
        picture = _picture(self.facts, self.free, each, self.empty)
        return msgspec.structs.replace(self, free_slots=each, picture=picture)

    def emptied(self) -> "Room":
        """The same node if all its GPUs were healthy and no pod held anything there."""
        return Room.of(self.healed().facts, [0] * len(self.free))


def _picture(facts: NodeFacts, free: Sequence[int], slots: Sequence[int], empty: Sequence[bool]) -> tuple[int, ...]:
    """One number for the sort of node, then one per GPU in rising order."""
    rows = zip(facts.gpus, free, slots, empty, strict=True)
    gpus = [
        (left << 48) + (units << 24) + (gpu.total << 2) + (unused << 1) + gpu.healthy
        for gpu, units, left, unused in rows
    ]
    gpus.sort()
    sort = (facts.limit << 8) + (facts.slots << 2) + 2 * (facts.pin is Pin.DIRECT) + (facts.unit == "GiB")
    return (sort, *gpus)
