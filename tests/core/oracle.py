"""The rules of placement, said once more as plainly as possible: try everything, keep what is allowed.

Slow and obviously right, for small cases only. What the core answers is compared with this.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

from gpushare.core.facts.model import Kind, Pin, Places, Request, Role, Share
from gpushare.core.placement.room import Room


class Spot(NamedTuple):
    """One GPU at one instant."""

    total: int
    free: int
    empty: bool
    healthy: bool
    slots: int  # free
    part: int  # what an MPS share takes that names no memory
    unit: int  # bytes


def spots(room: Room) -> tuple[Spot, ...]:
    facts, unit = room.facts, 1 << (20 if room.facts.unit == "MiB" else 30)
    return tuple(
        Spot(gpu.total, free, empty, gpu.healthy, slots, max(gpu.total // max(facts.slots, 1), 1), unit)
        for gpu, free, slots, empty in zip(facts.gpus, room.free, room.free_slots, room.empty, strict=True)
    )


def fits(request: Request, pin: Pin, on: tuple[Spot, ...]) -> bool:
    return _fits(tuple((s.role, s.kind, s.units, s.gpus, s.slot_bytes) for s in request.shares), pin, on)


@lru_cache(maxsize=100_000)
def _fits(shape: tuple[tuple[Role, Kind, int, int, int], ...], pin: Pin, on: tuple[Spot, ...]) -> bool:
    shares = [
        Share("c", i, role, kind, units, gpus, "", slot_bytes)
        for i, (role, kind, units, gpus, slot_bytes) in enumerate(shape)
    ]
    return next(placements(shares, pin, on), None) is not None


def placements(shares: Sequence[Share], pin: Pin, on: Sequence[Spot]) -> Iterator[Places]:
    """Every way to place these shares on these GPUs."""
    healthy = [gpu for gpu, spot in enumerate(on) if spot.healthy]
    for places in product(*[list(combinations(healthy, share.gpus)) for share in shares]):
        if allowed(shares, pin, on, places):
            yield places


def allowed(shares: Sequence[Share], pin: Pin, on: Sequence[Spot], places: Places) -> bool:
    most = peak(shares, on, places)
    if any(units > on[gpu].free or slots > on[gpu].slots for gpu, (units, slots) in most.items()):
        return False
    if pin is not Pin.DIRECT and not (_pool_on_one_gpu(shares, places) and _whole_pool_drawn_first(shares, places)):
        return False
    return all(
        _alone(i, gpu, shares, pin, on, places) for i, s in enumerate(shares) if s.kind.exclusive for gpu in places[i]
    )


def peak(shares: Sequence[Share], on: Sequence[Spot], places: Places) -> dict[int, tuple[int, int]]:
    """The most units and slots that are in use on each GPU, over all moments of the pod's life."""
    most: dict[int, tuple[int, int]] = {}
    for moment in range(len(shares)):
        there: dict[int, tuple[int, int]] = {}
        for i, share in enumerate(shares[: moment + 1]):
            if i == moment or share.role is not Role.INIT:
                for gpu in places[i]:
                    units, slots = there.get(gpu, (0, 0))
                    there[gpu] = units + _units(share, on[gpu]), slots + (share.kind.slots > 0)
        for gpu, (units, slots) in there.items():
            before = most.get(gpu, (0, 0))
            most[gpu] = max(before[0], units), max(before[1], slots)
    return most


def _units(share: Share, spot: Spot) -> int:
    if share.kind.exclusive:
        return spot.total
    if share.kind.slots:
        return -(-share.slot_bytes // spot.unit) or spot.part
    return share.units // share.gpus


def _alone(whole: int, gpu: int, shares: Sequence[Share], pin: Pin, on: Sequence[Spot], places: Places) -> bool:
    """A whole GPU has memory and is nobody else's, nor its own pod's in pieces. Pinned directly, an init container may
    have the whole GPU before its pod keeps a piece of it, and use what its pod will have wholly."""
    if not on[gpu].empty or not on[gpu].total:
        return False
    pieces = [s for s, chosen in zip(shares, places, strict=True) if not s.kind.exclusive and gpu in chosen]
    if pin is not Pin.DIRECT:
        return not pieces
    return shares[whole].role is Role.INIT or all(s.role is Role.INIT for s in pieces)


def drawers(shares: Sequence[Share]) -> list[int]:
    """Init containers, and those that get units which init containers left behind: kubelet's own bookkeeping."""
    pool, found = 0, []
    for i, share in enumerate(shares):
        if share.kind.exclusive:
            continue
        if share.role is Role.INIT:
            found.append(i)
            pool = max(pool, share.units)
        elif pool:
            found.append(i)
            pool -= min(pool, share.units)
    return found


def _pool_on_one_gpu(shares: Sequence[Share], places: Places) -> bool:
    """kubelet hands units on in random order, so all of them have to be on one GPU."""
    drawing = drawers(shares)
    if not any(shares[i].role is Role.INIT for i in drawing):
        return True
    return len({gpu for i in drawing for gpu in places[i]}) == 1


def _whole_pool_drawn_first(shares: Sequence[Share], places: Places) -> bool:
    """Whole GPUs that init containers had are used before any other."""
    pool: set[int] = set()
    for share, chosen in zip(shares, places, strict=True):
        if share.kind.exclusive:
            if not (pool <= set(chosen) or set(chosen) <= pool):
                return False
            pool = pool | set(chosen) if share.role is Role.INIT else pool - set(chosen)
    return True


def units_kubelet_holds(shares: Sequence[Share]) -> int:
    """How many units of one GPU kubelet's device manager marks for a pod in the end, container by container."""
    reusable: set[int] = set()
    allocated: set[int] = set()
    fresh = 0
    for share in shares:
        taken = set(sorted(reusable)[: share.units])
        missing = share.units - len(taken)
        taken |= set(range(fresh, fresh + missing))
        fresh += missing
        allocated |= taken
        reusable = reusable | taken if share.role is Role.INIT else reusable - taken
    return len(allocated)
