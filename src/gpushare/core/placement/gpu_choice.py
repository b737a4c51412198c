"""Which GPUs of a node a request gets: the plan.

Pure. A request is cut into pieces. The shares of a piece must be on the same GPUs: one container, or the containers
that use kubelet's pool of init units. One `search` serves all shapes, with the GPUs in the policy's order.
"""

from collections.abc import Sequence

from gpushare.core.facts import kinds
from gpushare.core.facts.model import Charge, Charges, Kind, NodeFacts, Pin, Places, Request, Role, Share, Unit
from gpushare.core.facts.policies import POLICIES
from gpushare.core.facts.scoring.order import Order
from gpushare.core.placement import cost
from gpushare.core.placement.cost import Budget, TooHard
from gpushare.core.placement.room import Room
from gpushare.core.placement.search import Search
from gpushare.core.placement.task import Piece, Task

MOST_SHARES = 200  # of one pod; a search goes one level deeper for each


def fits(task: Task, room: Room, budget: Budget) -> bool:
    """Whether there is a plan at all. Raises TooHard if that takes too long to find out."""
    if task.cannot_fit(room, budget):
        return False
    if task.leaves_alike and task.greedy(room, budget, emptiest_first=False) is not None:
        return True
    return Search(task, room, budget, emptiest_first=False).run() is not None


def plan(
    request: Request, room: Room, policy: str, budget: Budget | None = None, *, order: Order | None = None
) -> Places | None:
    """The GPUs of each share, or None if no plan was found. `order`: the points of the GPUs, if the policy gives
    some."""
    try:
        return search(request, room, policy, budget or Budget(cost.SEARCH_LOOKS), order=order)
    except TooHard:
        return None


def search(
    request: Request,
    room: Room,
    policy: str,
    budget: Budget,
    task: Task | None = None,
    *,
    order: Order | None = None,
) -> Places | None:
    """The GPUs of each share, or None if there is no plan. Raises TooHard if that takes too long to find out."""
    share = request.shares[0]
    if request.one_share and order is None:
        best = _best_gpu(share.units, room, policy)
        return None if best is None else ((best,),)
    if len(request.shares) == 1 and share.role is not Role.INIT and not share.kind.slots:
        return _one_container(share, room, policy, budget, order)
    if len(request.shares) > MOST_SHARES:
        raise TooHard
    task = task or task_of(request, room.facts.pin, room.facts.unit)
    if task is None or task.cannot_fit(room, budget):
        return None
    return Search(task, room, budget, emptiest_first=POLICIES[policy].emptiest_first, order=order).run()


def task_of(request: Request, pin: Pin, unit: Unit) -> Task | None:
    """What has to be placed on such nodes; None if kubelet's pool of init units allows no plan there."""
    pieces = pieces_of(request, pin, unit)
    return None if pieces is None else Task(request, pieces, unit)


def charges(shares: Sequence[Share], facts: NodeFacts, places: Places) -> Charges:
    """What a pod holds on each GPU for its whole life: the most that its containers need there at any time.

    Init containers run one after the other before the app containers; sidecars stay. kubelet's pool of init units
    comes to exactly the same.
    """
    if len(shares) == 1:
        (share,), (chosen,) = shares, places
        return tuple([Charge(gpu, share.on(facts.gpus[gpu], facts), share.kind.slots) for gpu in sorted(chosen)])
    placed = [(share, gpu) for share, chosen in zip(shares, places, strict=True) for gpu in chosen]
    units = _peaks([(share, gpu, share.on(facts.gpus[gpu], facts)) for share, gpu in placed])
    slots = _peaks([(share, gpu, share.kind.slots) for share, gpu in placed if share.kind.slots])
    return tuple([Charge(gpu, most, slots.get(gpu, 0)) for gpu, most in sorted(units.items())])


def _peaks(needs: Sequence[tuple[Share, int, int]]) -> dict[int, int]:
    """By GPU the most that is needed there at any time, out of what each share needs on each of its GPUs."""
    now: dict[int, int] = {}
    most: dict[int, int] = {}
    for share, gpu, amount in needs:
        need = now.get(gpu, 0) + amount
        if share.role is not Role.INIT:
            now[gpu] = need
        most[gpu] = max(most.get(gpu, 0), need)
    return most


def pieces_of(request: Request, pin: Pin, unit: Unit) -> tuple[Piece, ...] | None:
    """The pieces to be placed, the hardest first; None if kubelet's pool of init units allows no plan."""
    shares = request.shares
    alone = [i for i, share in enumerate(shares) if share.role is not Role.INIT]
    pooled: list[Piece] = []
    if pin is not Pin.DIRECT and len(alone) < len(shares):
        for kind in kinds.KINDS:
            pool = _pool(shares, kind)
            if pool is None:
                continue
            if not kind.exclusive and any(shares[i].gpus > 1 for i in pool):
                return None  # kubelet hands pool units on in random order, so they cannot be split over GPUs
            pooled.append(_pool_piece(shares, pool, kind))
            drawn = set(pool)
            alone = [i for i in alone if i not in drawn]
    pieces = pooled + [Piece((i,), shares[i].each_in(unit), shares[i].gpus, shares[i].kind) for i in alone]
    return tuple(sorted(pieces, key=lambda piece: (not piece.kind.exclusive, -piece.each, -piece.gpus)))


def _pool(shares: Sequence[Share], kind: Kind) -> tuple[int, ...] | None:
    """Ordinary init containers, and every later container that gets units which they leave behind."""
    left, drawing = 0, []
    for i, share in enumerate(shares):
        if share.kind is not kind:
            continue
        need = share.gpus if kind.exclusive else share.units
        if share.role is Role.INIT:
            drawing.append(i)
            left = max(left, need)
        elif left:
            drawing.append(i)
            left = max(left - need, 0)
    return tuple(drawing) if any(shares[i].role is Role.INIT for i in drawing) else None


def _pool_piece(shares: Sequence[Share], pool: tuple[int, ...], kind: Kind) -> Piece:
    kept = most = 0
    for i in pool:
        need = kept + (shares[i].gpus if kind.exclusive else shares[i].units)
        kept = kept if shares[i].role is Role.INIT else need
        most = max(most, need)
    return Piece(pool, 0, most, kind) if kind.exclusive else Piece(pool, most, 1, kind)


def _best_gpu(units: int, room: Room, policy: str) -> int | None:
    best, best_rank, emptiest_first = None, None, POLICIES[policy].emptiest_first
    for position, (gpu, free) in enumerate(zip(room.facts.gpus, room.free, strict=True)):
        if free >= units and gpu.healthy:
            rank = _rank(emptiest_first, free, room.empty[position])
            if best_rank is None or rank < best_rank:
                best, best_rank = position, rank
    return best


def _one_container(share: Share, room: Room, policy: str, budget: Budget, order: Order | None) -> Places | None:
    """What a search would find, found faster: the first GPUs that are able."""
    budget.spend(cost.NODE_LOOKS + 2 * len(room.free))
    emptiest_first, each = POLICIES[policy].emptiest_first, share.each
    rows = enumerate(zip(room.facts.gpus, room.free, room.empty, strict=True))
    exclusive = share.kind.exclusive
    able = [
        (free, empty, gpu)
        for gpu, (facts, free, empty) in rows
        if facts.healthy and (empty if exclusive else free >= each)
    ]
    if len(able) < share.gpus:
        return None
    able.sort(key=lambda row: _rank(emptiest_first, row[0], row[1]))
    gpus = [gpu for _, _, gpu in able]
    if order is not None:
        gpus.sort(key=lambda gpu: -order.points[gpu])
        if order.links and share.gpus > 1:
            return (order.first(gpus, share.gpus),)
    return (tuple(gpus[: share.gpus]),)


def _rank(emptiest_first: bool, free: int, empty: bool) -> tuple[int, bool]:
    """Smaller is better. With equal room, fullest first takes a GPU in use: the other one stays whole."""
    return (-free, not empty) if emptiest_first else (free, empty)
