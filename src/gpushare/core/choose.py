"""Which GPUs of a node a request gets: the plan.

Pure. One search serves all shapes: pieces that must sit together (a container, or kubelet's pool of init units), the
largest first, each tried on the GPUs in the policy's order, undone where the rest does not fit. Called by `fit` (is
there a plan?), by the ledger when it holds or reserves (which?), and by `preempt` and `explain` (would there be?).
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from gpushare.core.model import Data, Gpu, NodeFacts, Pin, Places, Request, Role, Share

BINPACK = "binpack"
SPREAD = "spread"
MOST_STEPS = 2_000  # of one search; more would be a pod of dozens of containers made to cost time
MOST_SHARES = 200  # of one pod; the search goes one call deeper for each, and a pod may be made to cost time


class Room(Data, frozen=True):
    """A node at one instant: what is free on each GPU. Made anew whenever something changes, never changed."""

    facts: NodeFacts
    free: tuple[int, ...]  # by position, never negative; sick GPUs included
    empty: tuple[bool, ...]  # nobody holds anything there
    rising: tuple[int, ...]  # free units of the well GPUs, smallest first
    sum_free: int
    largest: int  # the size of the largest GPU, well or not

    @staticmethod
    def of(facts: NodeFacts, used: Sequence[int]) -> "Room":
        gpus = facts.gpus
        free = tuple([max(gpu.total - taken, 0) for gpu, taken in zip(gpus, used, strict=True)])
        well = [amount for gpu, amount in zip(gpus, free, strict=True) if gpu.healthy]
        well.sort()
        largest = max([gpu.total for gpu in gpus], default=0)
        return Room(facts, free, tuple([not taken for taken in used]), tuple(well), sum(well), largest)

    def healed(self) -> "Room":
        """The same node if all its GPUs were well."""
        gpus = tuple(Gpu(g.index, g.uuid, g.total) for g in self.facts.gpus)
        facts = NodeFacts(self.facts.name, self.facts.unit, self.facts.pin, gpus)
        return Room(facts, self.free, self.empty, tuple(sorted(self.free)), sum(self.free), self.largest)


class Piece(Data, frozen=True):
    """Shares that must be on the same GPUs, and what they hold there together."""

    shares: tuple[int, ...]
    each: int
    gpus: int
    whole: bool


def plan(request: Request, room: Room, policy: str) -> Places | None:
    """The GPUs of each share, or None if there is no way to place them all."""
    if request.one_share:
        best = _best_gpu(request.shares[0].units, room, policy)
        return None if best is None else ((best,),)
    if len(request.shares) > MOST_SHARES:
        return None
    pieces = pieces_of(request, room.facts.pin)
    if pieces is None:
        return None
    return _Search(request, room, policy, pieces).run()


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
            alone = [i for i in alone if i not in pool]
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
    """One depth-first search; `left` is what remains of each GPU on the way down."""

    def __init__(self, request: Request, room: Room, policy: str, pieces: tuple[Piece, ...]) -> None:
        self.shares = request.shares
        self.gpus = room.facts.gpus
        self.policy = policy
        self.empty = room.empty
        self.left = [free if gpu.healthy else -1 for gpu, free in zip(self.gpus, room.free, strict=True)]
        self.untouched = list(self.left)
        self.pieces = pieces
        self.places: list[tuple[int, ...]] = [()] * len(self.shares)
        self.steps = 0
        pooled = {i for piece in pieces for i in piece.shares}
        self.inits = [i for i, s in enumerate(self.shares) if s.role is Role.INIT and i not in pooled]

    def run(self) -> Places | None:
        return tuple(self.places) if self._place(0) else None

    def _place(self, depth: int) -> bool:
        if depth == len(self.pieces):
            return self._place_inits()
        piece = self.pieces[depth]
        for gpus in self._candidates(piece):
            before = [self.left[gpu] for gpu in gpus]
            for gpu in gpus:
                self.left[gpu] = 0 if piece.whole else self.left[gpu] - piece.each
            self._assign(piece, gpus)
            if self._place(depth + 1):
                return True
            for gpu, amount in zip(gpus, before, strict=True):
                self.left[gpu] = amount
            for i in piece.shares:
                self.places[i] = ()
            if self.steps > MOST_STEPS:
                return False
        return False

    def _candidates(self, piece: Piece) -> Iterator[tuple[int, ...]]:
        able = [gpu for gpu in range(len(self.gpus)) if self._takes(gpu, piece)]
        able.sort(key=lambda gpu: (*_rank(self.policy, self.left[gpu], self.empty[gpu]), gpu))
        tried = set()
        for gpus in combinations(able, piece.gpus):
            self.steps += 1
            if self.steps > MOST_STEPS:
                return
            alike = tuple([(self.left[gpu], self.untouched[gpu], self.empty[gpu]) for gpu in gpus])
            if alike not in tried:  # GPUs alike in all that matters lead to the same end
                tried.add(alike)
                yield gpus

    def _takes(self, gpu: int, piece: Piece) -> bool:
        if piece.whole:
            return self.empty[gpu] and self.left[gpu] == self.gpus[gpu].total
        return self.left[gpu] >= piece.each

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
        for i in sorted(self.inits, key=lambda i: (not self.shares[i].whole, -self.shares[i].each)):
            self.places[i] = self._cheapest(i)
            if not self.places[i]:
                for other in self.inits:
                    self.places[other] = ()
                return False
        return True

    def _cheapest(self, init: int) -> tuple[int, ...]:
        share, found = self.shares[init], []
        held = dict(charges(self.shares, self.gpus, tuple(self.places)))
        for gpu, left in enumerate(self.left):
            self.places[init] = (gpu,)
            most = dict(charges(self.shares, self.gpus, tuple(self.places)))[gpu]
            if left >= 0 and most <= self.untouched[gpu] and (self.empty[gpu] or not share.whole):
                found.append((most - held.get(gpu, 0), _rank(self.policy, left, self.empty[gpu]), gpu))
        self.places[init] = ()
        found.sort()
        return tuple([gpu for _, _, gpu in found[: share.gpus]]) if len(found) >= share.gpus else ()
