"""Which units shall a container take? kubelet asks before it allocates, and does as it is told.

Pure. First on what is known at once: the oldest plan for that amount which can be kept. Refused, the caller looks at
the API server and asks again with `looked`; only then is a container placed otherwise than planned, or refused for
good. A refusal is final for the pod and people read it in its status, so it says why. Called by `service`.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gpushare.core.model import Refusal, Role, Share
from gpushare.node import handing, ids
from gpushare.node.desk import Desk, Steer, count
from gpushare.node.ids import Units
from gpushare.node.plans import Gpus, each_of
from gpushare.node.table import Owner

NO_PLAN: Final = (
    "no GPU of {node} has {amount} free and no plan was made for it; was the pod scheduled without the extender?"
)
PLAN_LOST: Final = "{amount} were planned on {gpus} of {node}; that is not free any more, nor is there another way"
NOT_SEEN: Final = "no plan for {amount} is known on {node}"
NO_MORE: Final = "{gpus} of {node}, where the pod's init containers are, has no room for {amount}"
MIXED: Final = "kubelet chose units of several GPUs of {node} ({counts}) for a container that nobody planned so"
TOO_MANY: Final = (
    "a container of {amount} is more than this kubelet can report; ask at most {most}, or pin directly (--pin=direct)"
)


class Ask(NamedTuple):
    """`must`: units the container has already; `available`: by GPU, the bits of those kubelet has, `must` included."""

    size: int
    whole: bool
    must: Units
    available: Callable[[str], int]


def prefer(desk: Desk, ask: Ask, *, looked: bool) -> Units | Refusal:
    """`looked`: the pods of this node have just been asked of the API server, as far as that was possible."""
    desk.steer = None
    _forget_what_kubelet_lost(desk, ask)
    if desk.most is not None and not ask.whole and ask.size > desk.most:
        return refusal(desk, "TooMany", TOO_MANY, ask.size, False, forever=True, most=f"{desk.most:,}")
    if ask.must:
        return _extend(desk, ask)
    wants = desk.plans.wants(ask.size, whole=ask.whole, first=desk.under_way())
    for want in wants:
        if want.gpus and all(_free(desk, ask, uuid) >= need for uuid, need in desk.plans.needs(want).items()):
            return _steer(desk, ask, want.owner, dict.fromkeys(want.gpus, each_of(want.share)), {})
    if not looked:
        return refusal(desk, "NotSeen", NOT_SEEN, ask.size, ask.whole)
    if not wants and desk.knows_all and _reopen(desk, ask):
        return prefer(desk, ask, looked=True)
    for want in wants:
        moved = desk.plans.replan(want, lambda uuid: _free(desk, ask, uuid))
        if moved is not None:
            return _steer(desk, ask, want.owner, dict.fromkeys(moved[want.owner], each_of(want.share)), moved)
    if wants:
        planned = next((want.gpus for want in wants if want.gpus), ())
        return refusal(desk, "PlanLost", PLAN_LOST, ask.size, ask.whole, planned)
    return _unplanned(desk, ask)


def refusal(
    desk: Desk, code: str, sentence: str, size: int, whole: bool, gpus: Gpus = (), *, forever: bool = False, **more: str
) -> Refusal:
    """`forever`: looking again would not help."""
    words = {"node": desk.facts.name, "amount": desk.amount(size, whole), "gpus": desk.gpus(gpus), **more}
    return Refusal(code, sentence.format(**words), forever)


def _unplanned(desk: Desk, ask: Ask) -> Units | Refusal:
    """Of whom nothing is known gets memory on one GPU, or whole GPUs, where no plan is in the way."""
    share = Share("", 0, Role.APP, 0, ask.size, True) if ask.whole else Share("", 0, Role.APP, ask.size)
    gpus = desk.plans.best_fit(share, lambda uuid: _free(desk, ask, uuid))
    if gpus is None:
        return refusal(desk, "NoPlan", NO_PLAN, ask.size, ask.whole)
    return _steer(desk, ask, None, dict.fromkeys(gpus, each_of(share)), {})


def _extend(desk: Desk, ask: Ask) -> Units | Refusal:
    """More units beside those that an init container of the same pod leaves behind."""
    found = handing.handed_on(desk, ask.must, ask.size, ask.whole)
    if isinstance(found, Refusal):
        return found
    _, want = found
    if not ask.whole and len(ask.must) > 1:
        return refusal(desk, "Mixed", MIXED, ask.size, False, counts=desk.counts(ask.must))
    planned = want.gpus or ()
    places = [*planned, *desk.table.gpus] if ask.whole else [*ask.must]
    pledged = desk.plans.pledged(desk.together(want.owner))
    missing, more = ask.size - count(ask.must), {}
    for uuid in dict.fromkeys(places):
        there = _free(desk, ask, uuid) - (0 if uuid in planned else pledged.get(uuid, 0))
        if missing and there > 0:
            more[uuid] = min(there, missing)
            missing -= more[uuid]
    if missing:
        return refusal(desk, "NoMore", NO_MORE, ask.size, ask.whole, tuple(ask.must))
    return _steer(desk, ask, want.owner, more, {})


def _reopen(desk: Desk, ask: Ask) -> bool:
    """All pods are known, none of them misses such a share, and yet kubelet asks for one: somebody's was given to
    another, who has ended since, and kubelet has it free again. Finds that grant and drops it."""
    for grant in desk.table.grants.values():
        alike = grant.whole is ask.whole and grant.size == ask.size and not grant.sure
        if alike and all(not bits & ~ask.available(uuid) for uuid, bits in grant.units.items()):
            desk.table.drop(grant)
            return True
    return False


def _steer(desk: Desk, ask: Ask, owner: Owner | None, counts: Mapping[str, int], moved: dict[Owner, Gpus]) -> Units:
    units = dict(ask.must)
    for uuid, needed in counts.items():
        free = ask.available(uuid) & desk.table.free(uuid, whole=ask.whole)
        units[uuid] = units.get(uuid, 0) | ids.lowest(free, needed)
    desk.steer = Steer(units, ask.whole, owner, moved)
    return units


def _free(desk: Desk, ask: Ask, uuid: str) -> int:
    """How many units of a GPU kubelet could be given now."""
    room = desk.table.room(uuid, whole=ask.whole)
    return min(room, (ask.available(uuid) & desk.table.free(uuid, whole=ask.whole)).bit_count()) if room else 0


def _forget_what_kubelet_lost(desk: Desk, ask: Ask) -> None:
    for number in list(desk.doubted):
        grant = desk.table.grants.get(number)
        if grant is None or grant.sure:
            desk.doubted.discard(number)
        elif grant.whole is ask.whole and all(not bits & ~ask.available(uuid) for uuid, bits in grant.units.items()):
            desk.table.drop(grant)
