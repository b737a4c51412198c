"""Which GPUs of a node a request gets: the plan.

Pure. One search serves all shapes: pieces that must sit together (a container, or kubelet's pool of init units), the
largest first, each tried on the GPUs in the policy's order, undone where the rest does not fit. What surely cannot fit
is found before by sums and counts; the first way down is best fit, and finds nearly every plan there is. What it costs
is counted in GPUs looked at, and bounded: a search that would take longer is given up, and says so.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import combinations

from gpushare.core.model import Data, Gpu, NodeFacts, Pin, Places, Request, Role, Share

BINPACK = "binpack"
SPREAD = "spread"
MOST_SHARES = 200  # of one pod; the search goes one call deeper for each, and a pod may be made to cost time
SEARCH_LOOKS = 8_000  # GPUs looked at in one search: about 2 ms
CALL_LOOKS = 20_000  # for everything that one call of a scheduler asks: about 8 ms
UNHURRIED_LOOKS = 2_000_000  # where nobody else waits: about half a second
NODE_LOOKS = 8  # what looking at a node costs besides
GPU_BITS = 10  # a node has at most 1024 GPUs
MOST_SIZES = 6  # of pieces that are counted before a search


class TooHard(Exception):
    """The search was given up: it would cost more than it may."""


class Budget:
    """How many GPUs may still be looked at, in all that uses this budget."""

    __slots__ = ("left",)

    def __init__(self, looks: int) -> None:
        self.left = looks

    def spend(self, looks: int) -> None:
        self.left -= looks
        if self.left < 0:
            raise TooHard


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
        facts = NodeFacts(self.facts.name, self.facts.unit, self.facts.pin, gpus)
        picture = _picture(facts, self.free, self.empty)
        return Room(facts, self.free, self.empty, tuple(sorted(self.free)), sum(self.free), self.largest, picture)


def _picture(facts: NodeFacts, free: Sequence[int], empty: Sequence[bool]) -> tuple[int, ...]:
    """One number per GPU, in order of size, after one for the kind of node."""
    rows = zip(facts.gpus, free, empty, strict=True)
    gpus = [(units << 24) + (gpu.total << 2) + (unused << 1) + gpu.healthy for gpu, units, unused in rows]
    gpus.sort()
    return (2 * (facts.pin is Pin.DIRECT) + (facts.unit == "GiB"), *gpus)


class Piece(Data, frozen=True):
    """Shares that must be on the same GPUs, and what they hold there together."""

    shares: tuple[int, ...]
    each: int
    gpus: int
    whole: bool


class Task:
    """A request on one kind of node, with all that does not depend on the node worked out beforehand."""

    def __init__(self, request: Request, pieces: tuple[Piece, ...]) -> None:
        self.shares = request.shares
        self.pieces = pieces
        pooled = {i for piece in pieces for i in piece.shares}
        inits = [i for i, s in enumerate(self.shares) if s.role is Role.INIT and i not in pooled]
        self.inits = sorted(inits, key=lambda i: (not self.shares[i].whole, -self.shares[i].each))
        self.sidecars_before = {i: [j for j in range(i) if self.shares[j].role is Role.SIDECAR] for i in self.inits}
        self.whole_gpus = sum(piece.gpus for piece in pieces if piece.whole)
        self.whole_pieces = sum(piece.whole for piece in pieces)  # they come first
        memory = [piece for piece in pieces if not piece.whole]
        self.smallest = memory[-1].each if memory else 0
        self.rest = _sums([0 if piece.whole else piece.each * piece.gpus for piece in pieces])
        self.counts = _counts(memory)
        self.widths: dict[int, int] = {}  # by number of GPUs, the most that one container wants on each of so many
        wanted = [(piece.gpus, piece.each) for piece in memory]
        wanted += [(s.gpus, s.each) for s in (self.shares[i] for i in self.inits) if not s.whole]
        for gpus, each in wanted:
            self.widths[gpus] = max(self.widths.get(gpus, 0), each)
        self.most_whole = max([self.whole_gpus, *[self.shares[i].gpus for i in self.inits if self.shares[i].whole]])
        # Without sidecars an init container has a GPU to itself while it runs: where the others are does not matter.
        self.leaves_alike = not any(self.sidecars_before.values())

    def cannot_fit(self, room: Room, budget: Budget) -> bool:
        """Whether sums and counts alone say that there is no plan. Cheap, and never wrong."""
        rising = room.rising
        budget.spend(NODE_LOOKS + len(rising))
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

    def greedy(self, room: Room, policy: str, budget: Budget) -> int | None:
        """What the GPUs that the pod gets keep free together, if putting each piece on the next best GPU places them
        all. None says nothing: there may be another way."""
        budget.spend(2 * (len(self.pieces) + len(room.rising)))
        # Twice what is left, and one more on GPUs that the pod has got something on.
        falls, left = policy == SPREAD, [2 * free for free in room.rising]
        for total in self._unused(room)[: self.whole_gpus]:
            del left[bisect_left(left, 2 * total)]
        for piece in self.pieces[self.whole_pieces :]:
            first = len(left) - piece.gpus if falls else bisect_left(left, 2 * piece.each)
            taken = left[first : first + piece.gpus] if first >= 0 else []
            if len(taken) < piece.gpus or taken[0] < 2 * piece.each:
                return None
            del left[first : first + piece.gpus]
            for amount in taken:
                insort(left, (amount - 2 * piece.each) | 1)
        return sum([amount >> 1 for amount in left if amount & 1])

    def _too_few_whole(self, room: Room) -> bool:
        """Whole GPUs are taken from those nobody uses; the smallest of them leave most to the other containers."""
        unused = self._unused(room)
        return len(unused) < self.most_whole or room.sum_free - sum(unused[: self.whole_gpus]) < self.rest[0]

    def _unused(self, room: Room) -> list[int]:
        """The sizes of the GPUs that nobody uses, the smallest first; not looked for if nobody wants a whole one."""
        if not self.most_whole:
            return []
        rows = zip(room.facts.gpus, room.empty, strict=True)
        return sorted([gpu.total for gpu, empty in rows if empty and gpu.healthy])


def _sums(amounts: Sequence[int]) -> list[int]:
    """What is still to be placed from each depth on."""
    sums = [0]
    for amount in reversed(amounts):
        sums.append(sums[-1] + amount)
    return sums[::-1]


def _counts(memory: Sequence[Piece]) -> list[tuple[int, int]]:
    """Of some sizes, how many parts are at least as large: no GPU holds more of them than its free memory divided by
    that size. The sizes that say most are the smallest and those in the middle."""
    sizes = sorted({piece.each for piece in memory})
    if len(memory) < 2 or not sizes:
        return []
    chosen = {sizes[i * (len(sizes) - 1) // (MOST_SIZES - 1)] for i in range(MOST_SIZES)}
    return [(size, sum(piece.gpus for piece in memory if piece.each >= size)) for size in sorted(chosen) if size]


def fits(task: Task, room: Room, budget: Budget) -> bool:
    """Whether there is a plan at all; else TooHard. Which one is only found out by a search."""
    if task.cannot_fit(room, budget):
        return False
    if task.leaves_alike and task.greedy(room, BINPACK, budget) is not None:
        return True
    return _Search(task, room, BINPACK, budget).run() is not None


def plan(request: Request, room: Room, policy: str, budget: Budget | None = None) -> Places | None:
    """The GPUs of each share, or None if no way to place them all was found."""
    try:
        return search(request, room, policy, budget or Budget(SEARCH_LOOKS))
    except TooHard:
        return None


def search(request: Request, room: Room, policy: str, budget: Budget, task: Task | None = None) -> Places | None:
    """The GPUs of each share, or None if there surely is no way to place them all; else TooHard."""
    if request.one_share:
        best = _best_gpu(request.shares[0].units, room, policy)
        return None if best is None else ((best,),)
    if len(request.shares) > MOST_SHARES:
        raise TooHard
    task = task or task_of(request, room.facts.pin)
    if task is None or task.cannot_fit(room, budget):
        return None
    return _Search(task, room, policy, budget).run()


def task_of(request: Request, pin: Pin) -> Task | None:
    """What has to be placed on such a node; None if kubelet's way with init containers allows no plan at all."""
    pieces = pieces_of(request, pin)
    return None if pieces is None else Task(request, pieces)


def charges(shares: Sequence[Share], gpus: Sequence[Gpu], places: Places) -> tuple[tuple[int, int], ...]:
    """What a pod holds on each GPU for its whole life: the most its containers need there at any time.

    Init containers run one after the other before the app containers; sidecars stay. This is also exactly what
    kubelet's pool of init units comes to.
    """
    now: dict[int, int] = {}
    most: dict[int, int] = {}
    for share, chosen in zip(shares, places, strict=True):
        for gpu in chosen:
            each = gpus[gpu].total if share.whole else share.each
            need = now.get(gpu, 0) + each
            if share.role is not Role.INIT:
                now[gpu] = need
            most[gpu] = max(most.get(gpu, 0), need)
    return tuple(sorted(most.items()))


def pieces_of(request: Request, pin: Pin) -> tuple[Piece, ...] | None:
    """What must be placed, the hardest first; None if kubelet's way with init containers allows no plan at all."""
    shares = request.shares
    alone = [i for i, share in enumerate(shares) if share.role is not Role.INIT]
    pooled: list[Piece] = []
    if pin is not Pin.DIRECT and len(alone) < len(shares):
        for whole in (False, True):
            pool = _pool(shares, whole)
            if pool is None:
                continue
            if not whole and any(shares[i].gpus > 1 for i in pool):
                return None  # kubelet hands pool units on in random order, so they cannot be split over GPUs
            pooled.append(_pool_piece(shares, pool, whole))
            drawn = set(pool)
            alone = [i for i in alone if i not in drawn]
    pieces = pooled + [Piece((i,), shares[i].each, shares[i].gpus, shares[i].whole) for i in alone]
    return tuple(sorted(pieces, key=lambda piece: (not piece.whole, -piece.each, -piece.gpus)))


def _pool(shares: Sequence[Share], whole: bool) -> tuple[int, ...] | None:
    """Ordinary init containers, and every later container that draws from the units they leave behind."""
    left, drawing = 0, []
    for i, share in enumerate(shares):
        if share.whole is not whole:
            continue
        need = share.gpus if whole else share.units
        if share.role is Role.INIT:
            drawing.append(i)
            left = max(left, need)
        elif left:
            drawing.append(i)
            left = max(left - need, 0)
    return tuple(drawing) if any(shares[i].role is Role.INIT for i in drawing) else None


def _pool_piece(shares: Sequence[Share], pool: tuple[int, ...], whole: bool) -> Piece:
    kept = most = 0
    for i in pool:
        need = kept + (shares[i].gpus if whole else shares[i].units)
        kept = kept if shares[i].role is Role.INIT else need
        most = max(most, need)
    return Piece(pool, 0, most, whole=True) if whole else Piece(pool, most, 1, whole=False)


def _best_gpu(units: int, room: Room, policy: str) -> int | None:
    best, best_rank = None, None
    for position, (gpu, free) in enumerate(zip(room.facts.gpus, room.free, strict=True)):
        if free >= units and gpu.healthy:
            rank = _rank(policy, free, room.empty[position])
            if best_rank is None or rank < best_rank:
                best, best_rank = position, rank
    return best


def _rank(policy: str, free: int, empty: bool) -> tuple[int, bool]:
    """Smaller is better. Between GPUs with as much free, one in use goes first: it leaves a whole one to others."""
    return (-free, not empty) if policy == SPREAD else (free, empty)


class _Search:
    """One depth-first search; `left` is what remains of each GPU on the way down, -1 of a sick one."""

    def __init__(self, task: Task, room: Room, policy: str, budget: Budget) -> None:
        self.task = task
        self.shares, self.pieces = task.shares, task.pieces
        self.gpus = room.facts.gpus
        self.empty = room.empty
        self.left = [free if gpu.healthy else -1 for gpu, free in zip(self.gpus, room.free, strict=True)]
        self.untouched = list(self.left)
        self.healthy = [position for position, left in enumerate(self.left) if left >= 0]
        self.places: list[tuple[int, ...]] = [()] * len(self.shares)
        # Of an order key the highest part is what is left, or by how much that is less than the most there can be.
        self.falls = policy == SPREAD
        self.ties = [((empty is not self.falls) << GPU_BITS) + gpu for gpu, empty in enumerate(self.empty)]
        self.budget, self.looks = budget, 0
        self.allowed = min(SEARCH_LOOKS, budget.left)
        self.dead_ends: set[tuple[int, ...]] = set()

    def run(self) -> Places | None:
        try:
            return tuple(self.places) if self._place(0) else None
        finally:
            self.budget.left -= self.looks

    def _look(self, gpus: int) -> None:
        self.looks += gpus
        if self.looks > self.allowed:
            raise TooHard

    def _place(self, depth: int) -> bool:
        if depth == len(self.pieces):
            return self._place_inits()
        piece, left = self.pieces[depth], self.left
        for gpus in self._candidates(piece):
            before = [left[gpu] for gpu in gpus]
            for gpu in gpus:
                left[gpu] = 0 if piece.whole else left[gpu] - piece.each
            if self._may_go_on(depth + 1):
                self._assign(piece, gpus)
                if self._place(depth + 1):
                    return True
            for gpu, amount in zip(gpus, before, strict=True):
                left[gpu] = amount
        self._remember_dead_end(depth)
        return False

    def _may_go_on(self, depth: int) -> bool:
        """Whether the rest may fit into what is left. Not asked before something has failed: most plans are found on
        the first way down."""
        if not self.dead_ends:
            return True
        self._look(len(self.left))
        least = self.task.smallest
        if sum([left for left in self.left if left >= least]) < self.task.rest[depth]:
            return False
        return not self.task.leaves_alike or self._state(depth) not in self.dead_ends

    def _remember_dead_end(self, depth: int) -> None:
        """GPUs with as much left lead to the same end, whichever they are, once all whole GPUs are placed."""
        self.dead_ends.add(self._state(depth))

    def _state(self, depth: int) -> tuple[int, ...]:
        whole = self.pieces[depth].whole if depth < len(self.pieces) else False
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
        for gpu in able:
            alike = (self.left[gpu], self.untouched[gpu], self.empty[gpu])
            if alike not in tried:  # GPUs alike in all that matters lead to the same end
                tried.add(alike)
                yield (gpu,)

    def _able(self, piece: Piece) -> list[int]:
        """The GPUs that can take a piece, the best first: one number each is sorted faster than a row of figures."""
        left, ties = self.left, self.ties
        if piece.whole:
            able = [gpu for gpu in self.healthy if self.empty[gpu] and left[gpu] == self.gpus[gpu].total]
        else:
            able = [gpu for gpu in self.healthy if left[gpu] >= piece.each]
        most = 1 << 30 if self.falls else 0
        keys = [(abs(most - left[gpu]) << (GPU_BITS + 1)) + ties[gpu] for gpu in able]
        keys.sort()
        return [key & ((1 << GPU_BITS) - 1) for key in keys]

    def _assign(self, piece: Piece, gpus: tuple[int, ...]) -> None:
        pool = list(gpus)
        for i in piece.shares:
            share = self.shares[i]
            if not piece.whole:
                self.places[i] = gpus
            else:
                self.places[i] = tuple(pool[: share.gpus])
                if share.role is not Role.INIT:
                    del pool[: share.gpus]

    def _place_inits(self) -> bool:
        """Directly pinned init containers, each where it costs least: on GPUs the pod has anyway, if it fits there.
        They run one at a time, so none of them takes anything from another."""
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
        """What the containers that stay have on each GPU."""
        held = [0] * len(self.left)
        for share, chosen in zip(self.shares, self.places, strict=True):
            if share.role is not Role.INIT:
                for gpu in chosen:
                    held[gpu] += self._amount(share, gpu)
        return held

    def _amount(self, share: Share, gpu: int) -> int:
        return self.gpus[gpu].total if share.whole else share.each

    def _cheapest(self, init: int, held: list[int]) -> tuple[int, ...]:
        """The GPUs where an init container adds least to what is held; that is added there."""
        share, found = self.shares[init], []
        beside = [0] * len(self.left)
        for i in self.task.sidecars_before[init]:
            for gpu in self.places[i]:
                beside[gpu] += self._amount(self.shares[i], gpu)
        for gpu in self.healthy:
            need = beside[gpu] + self._amount(share, gpu)
            if need <= self.untouched[gpu] and (self.empty[gpu] or not share.whole):
                left = -self.left[gpu] if self.falls else self.left[gpu]
                found.append((max(need - held[gpu], 0), left, self.ties[gpu], need))
        if len(found) < share.gpus:
            return ()
        found.sort()
        chosen = []
        for _, _, tie, need in found[: share.gpus]:
            gpu = tie & ((1 << GPU_BITS) - 1)
            held[gpu] = max(held[gpu], need)
            chosen.append(gpu)
        return tuple(chosen)
