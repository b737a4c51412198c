"""A node at one instant: what is free on each of its GPUs.

Pure. The ledger makes one whenever something changes; everybody who asks whether something fits looks at it.
The free units of an unhealthy GPU are in `free`, but not in `rising` and `sum_free`, by which `fit` answers.
"""

from collections.abc import Sequence

from gpushare.core.facts.model import Data, Gpu, NodeFacts, Pin


class Room(Data, frozen=True):
    """A node at one instant: what is free on each GPU. Made anew whenever something changes, never changed."""

    facts: NodeFacts
    free: tuple[int, ...]  # by position, never negative; sick GPUs included
    empty: tuple[bool, ...]  # nobody holds anything there
    rising: tuple[int, ...]  # free units of the well GPUs, smallest first
    sum_free: int
    largest: int  # the size of the largest GPU, well or not
    picture: tuple[int, ...]  # all that decides what fits, whatever node and GPUs are called: equal ones answer alike

    @staticmethod
    def of(facts: NodeFacts, used: Sequence[int]) -> "Room":
        gpus = facts.gpus
        free = tuple([max(gpu.total - taken, 0) for gpu, taken in zip(gpus, used, strict=True)])
        well = [amount for gpu, amount in zip(gpus, free, strict=True) if gpu.healthy]
        well.sort()
        empty = tuple([not taken for taken in used])
        largest = max([gpu.total for gpu in gpus], default=0)
        return Room(facts, free, empty, tuple(well), sum(well), largest, _picture(facts, free, empty))

    def healed(self) -> "Room":
        """The same node if all its GPUs were well."""
        gpus = tuple(Gpu(g.index, g.uuid, g.total) for g in self.facts.gpus)
        facts = NodeFacts(self.facts.name, self.facts.unit, self.facts.pin, gpus, limit=self.facts.limit)
        picture = _picture(facts, self.free, self.empty)
        return Room(facts, self.free, self.empty, tuple(sorted(self.free)), sum(self.free), self.largest, picture)

    def emptied(self) -> "Room":
        """The same node if all its GPUs were healthy and nobody held anything there."""
        return Room.of(self.healed().facts, [0] * len(self.free))


def _picture(facts: NodeFacts, free: Sequence[int], empty: Sequence[bool]) -> tuple[int, ...]:
    """One number per GPU, in order of size, after one for the kind of node."""
    rows = zip(facts.gpus, free, empty, strict=True)
    gpus = [(units << 24) + (gpu.total << 2) + (unused << 1) + gpu.healthy for gpu, units, unused in rows]
    gpus.sort()
    return ((facts.limit << 2) + 2 * (facts.pin is Pin.DIRECT) + (facts.unit == "GiB"), *gpus)
