"""The search for a plan: which pieces of a request go to which GPUs of a node.

Pure. `gpu_choice` cuts a request into pieces. Sums and counts find most requests that cannot fit. The first try is best
fit, which finds nearly every plan. Only then all ways are tried, the largest piece first; a step is undone where the
rest does not fit. A search that would cost too much is given up.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import combinations

from gpushare.core.facts.model import Data, Kind, Places, Request, Role
from gpushare.core.placement import cost
from gpushare.core.placement.cost import Budget, TooHard
from gpushare.core.placement.room import Room

GPU_BITS = 10  # a node has at most 1024 GPUs
MOST_SIZES = 6  # sizes of pieces that are counted before a search


class Piece(Data, frozen=True):
    """Shares that must be on the same GPUs, and what they hold there together."""

    shares: tuple[int, ...]
    each: int
    gpus: int
    kind: Kind


class Task:
    """A request on nodes with one pin, with everything that does not depend on the node worked out in advance."""

    def __init__(self, request: Request, pieces: tuple[Piece, ...]) -> None:
        self.shares = request.shares
        self.pieces = pieces
        pooled = {i for piece in pieces for i in piece.shares}
        inits = [i for i, s in enumerate(self.shares) if s.role is Role.INIT and i not in pooled]
        self.inits = sorted(inits, key=lambda i: (not self.shares[i].kind.exclusive, -self.shares[i].each))
        self.sidecars_before = {i: [j for j in range(i) if self.shares[j].role is Role.SIDECAR] for i in self.inits}
        self.whole_gpus = sum(piece.gpus for piece in pieces if piece.kind.exclusive)
        self.whole_pieces = sum(piece.kind.exclusive for piece in pieces)  # they come first
        memory = [piece for piece in pieces if not piece.kind.exclusive]
        self.smallest = memory[-1].each if memory else 0
        self.rest = _sums([0 if piece.kind.exclusive else piece.each * piece.gpus for piece in pieces])
        self.counts = _counts(memory)
        self.widths: dict[int, int] = {}  # by number of GPUs, the most that one container wants on each of so many
        wanted = [(piece.gpus, piece.each) for piece in memory]
        wanted += [(s.gpus, s.each) for s in (self.shares[i] for i in self.inits) if not s.kind.exclusive]
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
        for size, count in self.counts:
            budget.spend(len(rising))
            if sum([free // size for free in rising]) < count:
                return True
        return False

    def greedy(self, room: Room, budget: Budget, *, emptiest_first: bool) -> int | None:
        """Puts each piece on the next best GPU, and returns the sum of what stays free on the GPUs that the pod gets.
        None if that places not all of them: there may still be another way."""
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


class Search:
    """One depth-first search. `left`: what remains of each GPU on the way down, -1 of an unhealthy one."""

    def __init__(self, task: Task, room: Room, budget: Budget, *, emptiest_first: bool) -> None:
        self.task = task
        self.shares, self.pieces = task.shares, task.pieces
        self.gpus = room.facts.gpus
        self.empty = room.empty
        self.left = [free if gpu.healthy else -1 for gpu, free in zip(self.gpus, room.free, strict=True)]
        self.untouched = list(self.left)
        self.healthy = [position for position, left in enumerate(self.left) if left >= 0]
        self.places: list[tuple[int, ...]] = [()] * len(self.shares)
        # The high bits of an order key are what is left or, with the emptiest first, what is missing to the maximum.
        self.emptiest_first = emptiest_first
        self.ties = [((empty is not emptiest_first) << (GPU_BITS + 1)) + gpu for gpu, empty in enumerate(self.empty)]
        self.budget, self.looks = budget, 0
        self.allowed = min(cost.SEARCH_LOOKS, budget.left)
        self.dead_ends: set[tuple[int, ...]] = set()

    def run(self) -> Places | None:
        try:
            return tuple(self.places) if self._place() else None
        finally:
            self.budget.left -= self.looks

    def _look(self, gpus: int) -> None:
        self.looks += gpus
        if self.looks > self.allowed:
            raise TooHard

    def _place(self) -> bool:
        """Place the pieces one after the other; where one has no GPU left to try, move the one before it.

        With a stack of its own: calls that go up to 200 deep are slow at some depths of Python's.
        """
        pieces = self.pieces
        if not pieces:
            return self._place_inits()
        untried = [self._candidates(pieces[0])]  # by depth, the GPUs that a piece was not tried on yet
        before: list[tuple[tuple[int, ...], list[int]]] = []  # by depth, a piece's GPUs and what they had left
        while untried:
            depth = len(untried) - 1
            if len(before) > depth:
                self._take_back(*before.pop())
            gpus = next(untried[depth], None)
            if gpus is None:
                self._remember_dead_end(depth)
                untried.pop()
                continue
            before.append((gpus, self._take(pieces[depth], gpus)))
            if self._may_go_on(depth + 1):
                self._assign(pieces[depth], gpus)
                if depth + 1 < len(pieces):
                    untried.append(self._candidates(pieces[depth + 1]))
                elif self._place_inits():
                    return True
        return False

    def _take(self, piece: Piece, gpus: tuple[int, ...]) -> list[int]:
        """Put a piece on these GPUs. Returns what they had left before."""
        left, before = self.left, [self.left[gpu] for gpu in gpus]
        for gpu in gpus:
            left[gpu] = 0 if piece.kind.exclusive else left[gpu] - piece.each
        return before

    def _take_back(self, gpus: tuple[int, ...], before: list[int]) -> None:
        for gpu, amount in zip(gpus, before, strict=True):
            self.left[gpu] = amount

    def _may_go_on(self, depth: int) -> bool:
        """Whether the rest may fit into what is left. Checked only after something has failed: most plans are found on
        the first way down."""
        if not self.dead_ends:
            return True
        self._look(len(self.left))
        least = self.task.smallest
        if sum([left for left in self.left if left >= least]) < self.task.rest[depth]:
            return False
        return not self.task.leaves_alike or self._state(depth) not in self.dead_ends

    def _remember_dead_end(self, depth: int) -> None:
        """Once all whole GPUs are placed, GPUs with equal room are interchangeable."""
        self.dead_ends.add(self._state(depth))

    def _state(self, depth: int) -> tuple[int, ...]:
        whole = self.pieces[depth].kind.exclusive if depth < len(self.pieces) else False
        return (depth, *self.left) if whole else (depth, *sorted(self.left))

    def _candidates(self, piece: Piece) -> Iterator[tuple[int, ...]]:
        self._look(1 + len(self.left))
        able = self._able(piece)
        if piece.gpus == 1:
            yield from self._singles(able)
            return
        for gpus in combinations(able, piece.gpus):
            self._look(piece.gpus)
            yield gpus

    def _singles(self, able: list[int]) -> Iterator[tuple[int, ...]]:
        tried = set()
        leaves_alike = self.task.leaves_alike
        for gpu in able:
            left, before = self.left[gpu], self.untouched[gpu]
            # With sidecars it matters which containers of the pod are on a GPU, not only how much they hold.
            alike = (left, before, self.empty[gpu], -1 if leaves_alike or left == before else gpu)
            if alike not in tried:  # such GPUs are interchangeable
                tried.add(alike)
                yield (gpu,)

    def _able(self, piece: Piece) -> list[int]:
        """The GPUs that can take a piece, the best first. One number per GPU is sorted faster than a tuple."""
        left, ties = self.left, self.ties
        if piece.kind.exclusive:
            able = [gpu for gpu in self.healthy if self.empty[gpu] and left[gpu] == self.gpus[gpu].total]
        else:
            able = [gpu for gpu in self.healthy if left[gpu] >= piece.each]
        most, emptiest_first, before = 1 << 30 if self.emptiest_first else 0, self.emptiest_first, self.untouched
        # Of two GPUs with equal room, one that the pod uses already goes first, or last with the emptiest first.
        own = [((left[gpu] == before[gpu]) is not emptiest_first) << GPU_BITS for gpu in able]
        keys = [(abs(most - left[gpu]) << (GPU_BITS + 2)) + ties[gpu] + tie for gpu, tie in zip(able, own, strict=True)]
        keys.sort()
        return [key & ((1 << GPU_BITS) - 1) for key in keys]

    def _assign(self, piece: Piece, gpus: tuple[int, ...]) -> None:
        pool = list(gpus)
        for i in piece.shares:
            share = self.shares[i]
            if not piece.kind.exclusive:
                self.places[i] = gpus
            else:
                self.places[i] = tuple(pool[: share.gpus])
                if share.role is not Role.INIT:
                    del pool[: share.gpus]

    def _place_inits(self) -> bool:
        """Directly pinned init containers, each where it costs least: on GPUs of the pod, if there is room.
        They run one at a time, so they take nothing from each other."""
        if not self.task.inits:
            return True
        held = self._held()
        for i in self.task.inits:
            self._look(len(self.left) + len(self.task.sidecars_before[i]))
            self.places[i] = self._cheapest(i, held)
            if not self.places[i]:
                return False
        return True

    def _held(self) -> list[int]:
        """By GPU, what the containers hold that stay."""
        held = [0] * len(self.left)
        for share, chosen in zip(self.shares, self.places, strict=True):
            if share.role is not Role.INIT:
                for gpu in chosen:
                    held[gpu] += share.on(self.gpus[gpu])
        return held

    def _cheapest(self, init: int, held: list[int]) -> tuple[int, ...]:
        """The GPUs where an init container adds least to what the pod holds. What it adds is added to `held`."""
        share, costs = self.shares[init], []
        beside = [0] * len(self.left)
        for i in self.task.sidecars_before[init]:
            for gpu in self.places[i]:
                beside[gpu] += self.shares[i].on(self.gpus[gpu])
        for gpu in self.healthy:
            need = beside[gpu] + share.on(self.gpus[gpu])
            if need <= self.untouched[gpu] and (self.empty[gpu] or not share.kind.exclusive):
                left = -self.left[gpu] if self.emptiest_first else self.left[gpu]
                costs.append((max(need - held[gpu], 0), left, self.ties[gpu], need))
        if len(costs) < share.gpus:
            return ()
        costs.sort()
        chosen = []
        for _, _, tie, need in costs[: share.gpus]:
            gpu = tie & ((1 << GPU_BITS) - 1)
            held[gpu] = max(held[gpu], need)
            chosen.append(gpu)
        return tuple(chosen)
