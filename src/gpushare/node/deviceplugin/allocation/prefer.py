"""Which units a container shall take: kubelet asks before it allocates, and then takes those.

Pure. The first try uses what is known already: the oldest plan for that amount that can be kept. If it refuses, the
caller lists the pods of this node, then asks kubelet who has what, and tries again with `refreshed`. Only then a
container is placed elsewhere than planned, or refused. After a refusal the pod fails, and people read the sentence in
its status, so it says why.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from gpushare.core.facts.kinds import MEMORY, WHOLE
from gpushare.core.facts.model import Kind, Refusal, Role, Share
from gpushare.kubelet import unit_ids
from gpushare.kubelet.unit_ids import Units
from gpushare.node.deviceplugin.allocation import init_pool
from gpushare.node.deviceplugin.allocation.plans import Gpus, Want, each_of, size_of
from gpushare.node.deviceplugin.allocation.state import State, Steer, count
from gpushare.node.deviceplugin.allocation.table import Owner

NO_PLAN: Final = (
    "no GPU of {node} has {amount} free and no plan was made for it; was the pod scheduled without the extender?"
)
PLAN_LOST: Final = "{amount} were planned on {gpus} of {node}; there is no longer room, and no other GPU has room"
NOT_SEEN: Final = "no plan for {amount} is known on {node}"
NO_MORE: Final = "{gpus} of {node}, where the pod's init containers are, has no room for {amount}"
TOO_MANY: Final = (
    "a container of {amount} is more than this kubelet can report; "
    "ask for at most {most}, or pin directly (--pin=direct)"
)


class Ask(NamedTuple):
    """A question of kubelet. `must`: units that the container has already; `available`: by GPU, the units that kubelet
    can give, as bits, `must` included."""

    size: int
    kind: Kind
    must: Units
    available: Callable[[str], int]


def prefer(state: State, ask: Ask, *, refreshed: bool) -> Units | Refusal:
    """`refreshed`: the pods of this node were just listed, and kubelet was asked who has what, if they answered."""
    state.steer = None
    _forget_what_kubelet_lost(state, ask)
    if state.most is not None and not ask.kind.exclusive and ask.size > state.most:
        return refusal(state, "TooMany", TOO_MANY, ask.size, ask.kind, forever=True, most=f"{state.most:,}")
    if ask.must:
        return _extend(state, ask)

    used = partial(_used, state, ask)
    wants = state.plans.wants(ask.size, kind=ask.kind, first=state.admitting())
    for want in wants:
        if state.plans.can_be_kept(want, used):
            return _as_planned(state, ask, want)
    if not refreshed:
        return refusal(state, "NotSeen", NOT_SEEN, ask.size, ask.kind)
    if not wants and state.knows_all and _reopen(state, ask):
        return prefer(state, ask, refreshed=True)
    return _otherwise(state, ask, wants, used) if wants else _unplanned(state, ask, used)


def _as_planned(state: State, ask: Ask, want: Want) -> Units:
    return _steer(state, ask, want.owner, dict.fromkeys(want.gpus or (), each_of(want.share)), {})


def _otherwise(state: State, ask: Ask, wants: list[Want], used: Callable[[str], int]) -> Units | Refusal:
    """No plan can be kept: makes another plan. If there is none, it begins with one whose other shares may fit
    later."""
    for want in wants:
        moved = state.plans.replan(want, used)
        if moved is not None:
            return _steer(state, ask, want.owner, dict.fromkeys(moved[want.owner], each_of(want.share)), moved)
    for want in wants:
        if state.plans.can_begin(want, used):
            return _as_planned(state, ask, want)
    return no_way(state, wants, ask.size, ask.kind)


def refusal(
    state: State,
    code: str,
    sentence: str,
    size: int,
    kind: Kind,
    gpus: Gpus = (),
    *,
    forever: bool = False,
    **more: str,
) -> Refusal:
    """`forever`: another try would not help."""
    words = {"node": state.facts.name, "amount": state.amount(size, kind), "gpus": state.gpus(gpus), **more}
    return Refusal(code, sentence.format(**words), forever)


def no_way(state: State, wants: list[Want], size: int, kind: Kind) -> Refusal:
    """Nothing fits, neither as planned nor elsewhere."""
    planned = next((want.gpus for want in wants if want.gpus), None)
    if planned is None:
        return refusal(state, "NoPlan", NO_PLAN, size, kind)
    return refusal(state, "PlanLost", PLAN_LOST, size, kind, planned)


def _unplanned(state: State, ask: Ask, used: Callable[[str], int]) -> Units | Refusal:
    """A container without a plan gets memory on one GPU, or whole GPUs, that no plan needs."""
    units, number = (0, ask.size) if ask.kind.exclusive else (ask.size, 1)
    share = Share("", 0, Role.APP, ask.kind, units, number)
    gpus = state.plans.best_fit(share, used)
    if gpus is None:
        return no_way(state, [], ask.size, ask.kind)
    return _steer(state, ask, None, dict.fromkeys(gpus, each_of(share)), {})


def _extend(state: State, ask: Ask) -> Units | Refusal:
    """More units, in addition to those that an init container of the same pod hands on."""
    match = init_pool.handed_on(state, ask.must, ask.size, ask.kind)
    if isinstance(match, Refusal):
        return match
    _, want = match
    missing = ask.size - count(ask.must)
    outstanding = state.plans.outstanding(
        [other.owner for other in state.plans.of_pod(want.owner.uid)]
    )  # its own can move
    more = _more(state, ask, want, missing, outstanding) or _more(state, ask, want, missing, {})
    if more is None:
        return refusal(state, "NoMore", NO_MORE, ask.size, ask.kind, tuple(ask.must))
    return _steer(state, ask, want.owner, more, {})


def _more(state: State, ask: Ask, want: Want, missing: int, outstanding: Mapping[str, int]) -> dict[str, int] | None:
    """By GPU, how many more units, without those that are `outstanding` for other plans. Memory must be on the GPU
    where the rest of it is; without room there the pod fails. The plans of others can still be changed."""
    planned = want.gpus or ()
    more: dict[str, int] = {}
    for uuid in dict.fromkeys([*planned, *state.table.gpus] if ask.kind.exclusive else ask.must):
        there = _free(state, ask, uuid) - (0 if uuid in planned else outstanding.get(uuid, 0))
        if missing and there > 0:
            more[uuid] = min(there, missing)
            missing -= more[uuid]
    return None if missing else more


def _used(state: State, ask: Ask, uuid: str) -> int:
    """The units of a GPU that cannot be given now; 0 only if the whole GPU can be given."""
    total = state.table.gpus[uuid].total
    room = state.table.room(uuid, kind=MEMORY) if ask.kind.exclusive else _free(state, ask, uuid)
    whole_free = _free(state, ask, uuid) if ask.kind.exclusive else state.table.room(uuid, kind=WHOLE)
    return total - room if room < total or whole_free else 1


def _reopen(state: State, ask: Ask) -> bool:
    """All pods are known, no pod misses such a share, but kubelet asks for one. So a pod's grant was really another
    pod's, which has ended, and kubelet has those units free again. Finds that grant and drops it."""
    for uid in state.plans.pods:
        sizes = [size_of(share) for share in state.plans.shares(uid) if share.kind is ask.kind]
        if ask.size in sizes and _is_lost(state, ask, uid):
            return True
    return False


def _is_lost(state: State, ask: Ask, uid: str) -> bool:
    """Drops the grants of a pod if kubelet offers all their units again."""
    grants = [grant for grant in state.table.of_pod(uid) if grant.kind is ask.kind]
    units = [(uuid, bits) for grant in grants for uuid, bits in grant.units.items() if bits]
    lost = bool(units) and not any(grant.confirmed for grant in grants)
    lost = lost and all(not bits & ~ask.available(uuid) for uuid, bits in units)
    for grant in grants if lost else ():
        state.table.drop(grant)
    return lost


def _steer(state: State, ask: Ask, owner: Owner | None, counts: Mapping[str, int], moved: dict[Owner, Gpus]) -> Units:
    units = dict(ask.must)
    for uuid, needed in counts.items():
        free = ask.available(uuid) & state.table.free(uuid, kind=ask.kind)
        units[uuid] = units.get(uuid, 0) | unit_ids.lowest(free, needed)
    state.steer = Steer(units, ask.kind, owner, moved)
    return units


def _free(state: State, ask: Ask, uuid: str) -> int:
    """How many units of a GPU can be given now."""
    room = state.table.room(uuid, kind=ask.kind)
    return min(room, (ask.available(uuid) & state.table.free(uuid, kind=ask.kind)).bit_count()) if room else 0


def _forget_what_kubelet_lost(state: State, ask: Ask) -> None:
    for uid in state.doubted:
        _is_lost(state, ask, uid)
    state.doubted = {uid for uid in state.doubted if any(not grant.confirmed for grant in state.table.of_pod(uid))}
