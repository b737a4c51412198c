"""The search for a plan: which pieces of a request go to which GPUs of a node.

Pure. `gpu_choice` cuts a request into pieces. Where `task` does not know the answer all ways are tried, the largest
piece first; a step is undone where the rest does not fit. A search that would cost too much is given up.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations

from gpushare.core.facts.model import Charge, Places, Role, Share
from gpushare.core.facts.scoring.order import Order
from gpushare.core.placement import cost
from gpushare.core.placement.cost import Budget, TooHard
from gpushare.core.placement.room import Room, Taken
from gpushare.core.placement.task import Piece, Task

GPU_BITS = 10  # a node has at most 1024 GPUs


class Search:
    """One depth-first search. `left`: the units that remain of each GPU on the way down, -1 of an unhealthy one.
    `slots`: the same for MPS slots."""

    def __init__(
        self, task: Task, room: Room, budget: Budget, *, emptiest_first: bool, order: Order | None = None
    ) -> None:
        self.task = task
        self.order = order
        self.shares, self.pieces = task.shares, task.pieces
        self.facts, self.gpus = room.facts, room.facts.gpus
        self.empty = room.empty
        self.slots, self.untouched_slots = list(room.free_slots), room.free_slots
        self.left = [free if gpu.healthy else -1 for gpu, free in zip(self.gpus, room.free, strict=True)]
        self.untouched = list(self.left)
        self.healthy = [position for position, left in enumerate(self.left) if left >= 0]
        self.places: list[tuple[int, ...]] = [()] * len(self.shares)
        # The high bits of an order key are what is left or, with the emptiest first, what is missing to the maximum.
        self.emptiest_first = emptiest_first
        self.ties = [((empty is not emptiest_first) << (GPU_BITS + 1)) + gpu for gpu, empty in enumerate(self.empty)]
        self.budget, self.looks = budget, 0
        self.weight = cost.SLOT_WEIGHT if task.most_with_slots else 1
        self.allowed = min(cost.SEARCH_LOOKS, budget.left)
        self.dead_ends: set[tuple[object, ...]] = set()
        # By GPU what an MPS share takes there whose memory depends on the GPU: worked out once, for all of them.
        part = next((self.shares[p.shares[0]] for p in self.pieces if p.kind.slots and not p.each), None)
        self.parts = [part.on(gpu, self.facts) for gpu in self.gpus] if part is not None else []

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
                self._take_back(pieces[depth], *before.pop())
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
        before = [self.left[gpu] for gpu in gpus]
        for gpu in gpus:
            self.left[gpu] -= piece.each or (self.parts[gpu] if piece.kind.slots else self.left[gpu])  # a whole GPU
            self.slots[gpu] -= piece.kind.slots
        return before

    def _take_back(self, piece: Piece, gpus: tuple[int, ...], before: list[int]) -> None:
        for gpu, amount in zip(gpus, before, strict=True):
            self.left[gpu] = amount
            self.slots[gpu] += piece.kind.slots

    def _may_go_on(self, depth: int) -> bool:
        """Whether the rest may fit into what is left. Checked only after something has failed: most plans are found on
        the first way down."""
        if not self.dead_ends:
            return True
        self._look(self.weight * len(self.left))
        least = self.task.smallest
        if sum([left for left in self.left if left >= least]) < self.task.rest[depth]:
            return False
        return not self.task.leaves_alike or self._state(depth) not in self.dead_ends

    def _remember_dead_end(self, depth: int) -> None:
        """Once all whole GPUs are placed, GPUs with equal room are interchangeable."""
        self.dead_ends.add(self._state(depth))

    def _state(self, depth: int) -> tuple[object, ...]:
        if depth < len(self.pieces) and self.pieces[depth].kind.exclusive:
            return (depth, *self.left)
        if self.task.most_with_slots:  # what an MPS share takes may depend on the size of the GPU
            return (depth, *sorted(zip(self.left, self.slots, [gpu.total for gpu in self.gpus], strict=True)))
        return (depth, *sorted(self.left))

    def _candidates(self, piece: Piece) -> Iterator[tuple[int, ...]]:
        self._look(self.weight * (1 + len(self.left)))
        able = self._able(piece)
        if piece.gpus == 1:
            yield from self._singles(able)
            return
        if self.order is not None and self.order.links and len(able) >= piece.gpus:
            yield self.order.first(able, piece.gpus)
        for gpus in combinations(able, piece.gpus):
            self._look(self.weight * piece.gpus)
            yield gpus

    def _singles(self, able: list[int]) -> Iterator[tuple[int, ...]]:
        tried = set()
        leaves_alike, sized = self.task.leaves_alike, bool(self.task.most_with_slots)
        for gpu in able:
            left, before = self.left[gpu], self.untouched[gpu]
            slots = (self.slots[gpu], self.untouched_slots[gpu], self.gpus[gpu].total) if sized else ()
            # With sidecars it matters which containers of the pod are on a GPU, not only how much they hold.
            alike = (left, before, self.empty[gpu], -1 if leaves_alike or left == before else gpu, slots)
            if alike not in tried:  # such GPUs are interchangeable
                tried.add(alike)
                yield (gpu,)

    def _able(self, piece: Piece) -> list[int]:
        """The GPUs that can take a piece, the best first. One number per GPU is sorted faster than a tuple."""
        left, ties = self.left, self.ties
        if piece.kind.exclusive:
            able = [gpu for gpu in self.healthy if self.empty[gpu] and left[gpu] == self.gpus[gpu].total]
        elif piece.kind.slots:
            with_slot = [gpu for gpu in self.healthy if self.slots[gpu] >= piece.kind.slots]
            able = [gpu for gpu in with_slot if left[gpu] >= (piece.each or self.parts[gpu])]
        else:
            able = [gpu for gpu in self.healthy if left[gpu] >= piece.each]
        most, emptiest_first, before = 1 << 30 if self.emptiest_first else 0, self.emptiest_first, self.untouched
        # Of two GPUs with equal room, one that the pod uses already goes first, or last with the emptiest first.
        own = [((left[gpu] == before[gpu]) is not emptiest_first) << GPU_BITS for gpu in able]
        keys = [(abs(most - left[gpu]) << (GPU_BITS + 2)) + ties[gpu] + tie for gpu, tie in zip(able, own, strict=True)]
        keys.sort()
        able = [key & ((1 << GPU_BITS) - 1) for key in keys]
        if self.order is not None:  # of GPUs with equal points, as before
            points = self.order.points
            able.sort(key=lambda gpu: -points[gpu])
        return able

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
        stays = [(s, at) for s, at in zip(self.shares, self.places, strict=True) if s.role is not Role.INIT]
        held = self._sum(stays)
        for i in self.task.inits:
            beside = sum([len(self.places[j]) for j in self.task.sidecars_before[i]])
            self._look(len(self.left) + cost.SIDECAR_LOOKS * beside)
            self.places[i] = self._cheapest(i, held)
            if not self.places[i]:
                return False
        return True

    def _sum(self, placed: Iterable[tuple[Share, tuple[int, ...]]]) -> Taken:
        """By GPU, what shares on these GPUs hold together."""
        held = Taken.nothing(len(self.left))
        for share, chosen in placed:
            held.add([Charge(gpu, share.on(self.gpus[gpu], self.facts), share.kind.slots) for gpu in chosen])
        return held

    def _cheapest(self, init: int, held: Taken) -> tuple[int, ...]:
        """The GPUs where an init container adds least to what the pod holds. What it adds is added to `held`."""
        share, costs = self.shares[init], []
        beside = self._sum([(self.shares[i], self.places[i]) for i in self.task.sidecars_before[init]])
        for gpu in self.healthy:
            need = beside.units[gpu] + share.on(self.gpus[gpu], self.facts)
            slots = beside.slots[gpu] + share.kind.slots
            has_room = need <= self.untouched[gpu] and slots <= self.untouched_slots[gpu]
            if has_room and (self.empty[gpu] or not share.kind.exclusive):
                left = -self.left[gpu] if self.emptiest_first else self.left[gpu]
                more = max(need - held.units[gpu], 0), max(slots - held.slots[gpu], 0)
                costs.append((*more, left, self.ties[gpu], need, slots))
        if len(costs) < share.gpus:
            return ()
        costs.sort()
        chosen = []
        for _, _, _, tie, need, slots in costs[: share.gpus]:
            gpu = tie & ((1 << GPU_BITS) - 1)
            held.units[gpu], held.slots[gpu] = max(held.units[gpu], need), max(held.slots[gpu], slots)
            chosen.append(gpu)
        return tuple(chosen)
