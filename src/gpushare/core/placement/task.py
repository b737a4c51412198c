"""What has to be placed: the pieces of a request, and what sums and counts say about them.

Pure. Everything that does not depend on a node is worked out once. Sums and counts find most requests that cannot fit,
and best fit finds nearly every plan; `search` is for the rest.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from gpushare.core.facts.model import Data, Kind, Request, Role, Unit
from gpushare.core.placement import cost
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.room import Room

MOST_SIZES = 6  # sizes of pieces that are counted before a search


class Piece(Data, frozen=True):
    """Shares that must be on the same GPUs, and what they hold there together."""

    shares: tuple[int, ...]
    each: int  # units on each GPU; 0 if that depends on the GPU
    gpus: int
    kind: Kind


class Task:
    """A request on nodes with one pin and unit, with everything that does not depend on the node worked out in
    advance."""

    def __init__(self, request: Request, pieces: tuple[Piece, ...], unit: Unit) -> None:
        self.shares = request.shares
        self.pieces = pieces
        pooled = {i for piece in pieces for i in piece.shares}
        inits = [i for i, s in enumerate(self.shares) if s.role is Role.INIT and i not in pooled]
        self.inits = sorted(inits, key=lambda i: (not self.shares[i].kind.exclusive, -self.shares[i].each_in(unit)))
        self.sidecars_before = {i: [j for j in range(i) if self.shares[j].role is Role.SIDECAR] for i in self.inits}
        self.whole_gpus = sum(piece.gpus for piece in pieces if piece.kind.exclusive)
        self.whole_pieces = sum(piece.kind.exclusive for piece in pieces)  # they come first
        memory = [piece for piece in pieces if not piece.kind.exclusive]
        self.smallest = memory[-1].each if memory else 0
        self.rest = _sums([piece.each * piece.gpus for piece in pieces])
        self.counts = _counts(memory)
        self.slots = sum([piece.kind.slots * piece.gpus for piece in pieces])
        with_slots = [share for share in self.shares if share.kind.slots]
        self.most_with_slots = max([share.gpus for share in with_slots], default=0)  # GPUs of one container
        self.widths: dict[int, int] = {}  # by number of GPUs, the most that one container wants on each of so many
        wanted = [(piece.gpus, piece.each) for piece in memory]
        wanted += [(s.gpus, s.each_in(unit)) for s in (self.shares[i] for i in self.inits) if not s.kind.exclusive]
        for gpus, each in wanted:
            self.widths[gpus] = max(self.widths.get(gpus, 0), each)
        self.most_whole = max(
            [self.whole_gpus, *[self.shares[i].gpus for i in self.inits if self.shares[i].kind.exclusive]]
        )
        # Without sidecars an init container runs alone, so it does not matter where the other containers will be.
        self.leaves_alike = not any(self.sidecars_before.values())

    def cannot_fit(self, room: Room, budget: Budget) -> bool:
        """Whether sums and counts alone prove that there is no plan. Cheap, and never wrong."""
        rising = room.rising
        budget.spend(cost.NODE_LOOKS + len(rising))
        if room.sum_free < self.rest[0]:
            return True
        for gpus, each in self.widths.items():
            if gpus > len(rising) or rising[-gpus] < each:
                return True
        if self.most_whole and self._too_few_whole(room):
            return True
        if self.most_with_slots and self._too_few_slots(room):
            return True
        for size, count in self.counts:
            budget.spend(len(rising))
            if sum([free // size for free in rising]) < count:
                return True
        return False

    def greedy(self, room: Room, budget: Budget, *, emptiest_first: bool) -> int | None:
        """Puts each piece on the next best GPU, and returns the sum of what stays free on the GPUs that the pod gets.
        None if that places not all of them: there may still be another way. None for MPS shares, too: two GPUs with
        as much free may differ in slots and size."""
        if self.most_with_slots:
            return None
        budget.spend(2 * (len(self.pieces) + len(room.rising)))
        # Twice what is left, plus one on GPUs that the pod does not use.
        left = [2 * free + 1 for free in room.rising]
        unused = self._unused(room)
        for total in unused[len(unused) - self.whole_gpus :] if emptiest_first else unused[: self.whole_gpus]:
            del left[bisect_left(left, 2 * total + 1)]
        for piece in self.pieces[self.whole_pieces :]:
            first = len(left) - piece.gpus if emptiest_first else bisect_left(left, 2 * piece.each)
            taken = left[first : first + piece.gpus] if first >= 0 else []
            if len(taken) < piece.gpus or taken[0] < 2 * piece.each:
                return None
            del left[first : first + piece.gpus]
            for amount in taken:
                insort(left, (amount - 2 * piece.each) & -2)
        return sum([amount >> 1 for amount in left if not amount & 1])

    def _too_few_whole(self, room: Room) -> bool:
        """Whole GPUs come from those that no pod uses. Taking the smallest leaves most to the other containers."""
        unused = self._unused(room)
        return len(unused) < self.most_whole or room.sum_free - sum(unused[: self.whole_gpus]) < self.rest[0]

    def _too_few_slots(self, room: Room) -> bool:
        rows = zip(room.facts.gpus, room.free_slots, strict=True)
        left = [slots for gpu, slots in rows if slots and gpu.healthy]
        return len(left) < self.most_with_slots or sum(left) < self.slots

    def _unused(self, room: Room) -> list[int]:
        """The sizes of the GPUs that no pod uses, the smallest first; empty if no whole GPU is asked for."""
        if not self.most_whole:
            return []
        rows = zip(room.facts.gpus, room.empty, strict=True)
        return sorted([gpu.total for gpu, empty in rows if empty and gpu.healthy])


def _sums(amounts: Sequence[int]) -> list[int]:
    """By depth, the sum of what is still to be placed."""
    sums = [0]
    for amount in reversed(amounts):
        sums.append(sums[-1] + amount)
    return sums[::-1]


def _counts(memory: Sequence[Piece]) -> list[tuple[int, int]]:
    """For some sizes, how many parts are at least as large. A GPU holds at most its free memory divided by that size of
    them. The smallest sizes and those in the middle prove most."""
    sizes = sorted({piece.each for piece in memory})
    if len(memory) < 2 or not sizes:
        return []
    chosen = {sizes[i * (len(sizes) - 1) // (MOST_SIZES - 1)] for i in range(MOST_SIZES)}
    return [(size, sum(piece.gpus for piece in memory if piece.each >= size)) for size in sorted(chosen) if size]
