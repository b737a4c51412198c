"""A node at one instant: what is free on each of its GPUs.

Pure. The ledger makes a new room whenever something changes. Whether a request fits is decided on rooms.
The free units of an unhealthy GPU are in `free`, but not in `rising` and `sum_free`, by which `fit` answers.

What happens next: kube-scheduler asks about a pod (`core/scheduling/life.py`), and `core/placement/fit.py` compares it
with the rooms.
"""

from collections.abc import Sequence

from gpushare.core.facts.model import Data, Gpu, NodeFacts, Pin


class Room(Data, frozen=True):
    """A node at one instant: what is free on each GPU. Never changed."""

    facts: NodeFacts
    free: tuple[int, ...]  # by position, never negative; unhealthy GPUs included
    empty: tuple[bool, ...]  # no pod holds anything there
    rising: tuple[int, ...]  # free units of the healthy GPUs, smallest first
    sum_free: int
    largest: int  # the size of the largest GPU, healthy or not
    picture: tuple[int, ...]  # everything that decides what fits, without names: equal pictures, equal answers

    @staticmethod
    def of(facts: NodeFacts, used: Sequence[int]) -> "Room":
        gpus = facts.gpus
        free = tuple([max(gpu.total - taken, 0) for gpu, taken in zip(gpus, used, strict=True)])
        healthy = [amount for gpu, amount in zip(gpus, free, strict=True) if gpu.healthy]
        healthy.sort()
        empty = tuple([not taken for taken in used])
        largest = max([gpu.total for gpu in gpus], default=0)
        return Room(facts, free, empty, tuple(healthy), sum(healthy), largest, _picture(facts, free, empty))

    def healed(self) -> "Room":
        """The same node if all its GPUs were healthy."""
        gpus = tuple(Gpu(g.index, g.uuid, g.total) for g in self.facts.gpus)
        facts = NodeFacts(self.facts.name, self.facts.unit, self.facts.pin, gpus, limit=self.facts.limit)
        picture = _picture(facts, self.free, self.empty)
        return Room(facts, self.free, self.empty, tuple(sorted(self.free)), sum(self.free), self.largest, picture)

    def emptied(self) -> "Room":
        """The same node if all its GPUs were healthy and no pod held anything there."""
        return Room.of(self.healed().facts, [0] * len(self.free))


def _picture(facts: NodeFacts, free: Sequence[int], empty: Sequence[bool]) -> tuple[int, ...]:
    """One number for the sort of node, then one per GPU in rising order."""
    rows = zip(facts.gpus, free, empty, strict=True)
    gpus = [(units << 24) + (gpu.total << 2) + (unused << 1) + gpu.healthy for gpu, units, unused in rows]
    gpus.sort()
    return ((facts.limit << 2) + 2 * (facts.pin is Pin.DIRECT) + (facts.unit == "GiB"), *gpus)
