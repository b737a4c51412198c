"""Corrects the table when kubelet's list shows who really has what.

Pure. A grant is written down for the pod whose plan it matched. It may belong to an equal pod, or to no pod if the pod
failed meanwhile. kubelet's list shows it, except for ordinary init containers, which are not on the list: what they
hold is worked out from the pod's spec. At the start, when the table is empty, it is filled in the same way.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gpushare.core.facts.model import Kind, Role
from gpushare.core.placement import gpu_choice
from gpushare.kubelet.unit_ids import Units
from gpushare.node.deviceplugin.allocation.plans import each_of, size_of
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.deviceplugin.allocation.table import Grant, Owner


class Held(NamedTuple):
    """What one container has, by kubelet's list. `owner` None: its pod is not known here. `strange`: by GPU, how many
    units it has under ids that are not ours."""

    owner: Owner | None
    units: Units
    kind: Kind
    strange: dict[str, int]


def correct(state: State, held: Sequence[Held], admitted: Collection[str], upto: int) -> None:
    """`admitted`: uids of pods that kubelet has admitted. `upto`: the last grant made before kubelet was asked."""
    adopt(state, admitted)
    listed = {entry.owner.uid for entry in held if entry.owner is not None}
    confirmed = {_correct_one(state, entry).number for entry in held}
    for grant in list(state.table.grants.values()):
        if grant.confirmed or grant.number > upto or grant.number in confirmed:
            continue
        uids = {owner.uid for owner in grant.owners}
        if grant.passing and uids & (listed | set(admitted)) and _is_its_pods(state, grant):
            grant.confirmed, grant.passing = True, False
        elif not (grant.passing and all(_only_inits(state, uid) for uid in uids) and uids):
            state.table.drop(grant)
    for uid in admitted:
        _remember_inits(state, uid)


def assume(state: State, admitted: Collection[str]) -> None:
    """At the start, if kubelet does not answer: pods that it has admitted hold what was planned for them."""
    for uid in admitted:
        for i in range(len(state.plans.shares(uid))):
            if state.table.of(Owner(uid, i)) is None:
                _remember(state, [Owner(uid, i)])  # not confirmed: kubelet's first answer replaces it


def adopt(state: State, admitted: Collection[str]) -> None:
    """Of equal pods, those that kubelet has admitted own the grants made so far."""
    for uid in admitted:
        for i in range(len(state.plans.shares(uid))):
            owner = Owner(uid, i)
            grant = state.unclear(owner, lambda other: other not in admitted) if state.table.of(owner) is None else None
            if grant is not None:
                state.relabel(grant, owner)


def give_up(state: State) -> None:
    """kubelet has not answered for long. Grants whose pods have ended are dropped, unless an equal pod is there that
    may own them."""
    shares = [
        state.share(owner) for grant in state.table.grants.values() if not grant.confirmed for owner in grant.owners
    ]
    alike = {(share.kind, size_of(share)) for share in shares}
    for grant in list(state.table.grants.values()):
        if not grant.confirmed and not grant.owners and (grant.kind, grant.size) not in alike:
            state.table.drop(grant)


def is_uncertain(state: State) -> bool:
    """Whether there are grants that kubelet's list could confirm."""
    return any(
        not grant.confirmed and not (grant.owners and all(_only_inits(state, owner.uid) for owner in grant.owners))
        for grant in state.table.grants.values()
    )


def _correct_one(state: State, entry: Held) -> Grant:
    table, owner = state.table, entry.owner
    grant = table.of(owner) if owner is not None else None
    if grant is None or not _is(grant, entry):
        match = next((g for g in table.grants.values() if _is(g, entry) and not g.confirmed), None)
        if grant is not None and grant.confirmed:
            table.drop(grant)
        if match is not None and owner is not None:
            state.relabel(match, owner)
        elif owner is not None:
            state.trade_plans(owner, frozenset(entry.units))
        grant = match or table.give(owner, entry.units, kind=entry.kind, unnamed=entry.strange)
    if owner is not None:
        grant.confirmed, grant.passing = True, False
    return grant


def _is(grant: Grant, entry: Held) -> bool:
    return grant.units == entry.units and grant.unnamed == entry.strange and grant.kind is entry.kind


def _is_its_pods(state: State, pool: Grant) -> bool:
    """Whether what the init containers still hold has the right size and place, given what later containers took."""
    owners = sorted(pool.owners)
    taken = (state.table.of(other) for other in state.together(owners[0]) if other not in pool.owners)
    on = {uuid for grant in taken if grant is not None for uuid in grant.gpus} or pool.gpus
    if not pool.kind.exclusive and not pool.gpus <= on:
        return False
    return not any(_lifelong(state, owners[0].uid, owners, tuple(sorted(on))).values())


def _only_inits(state: State, uid: str) -> bool:
    return all(share.role is Role.INIT for share in state.plans.shares(uid))


def _remember_inits(state: State, uid: str) -> None:
    """kubelet keeps the units of a pod's init containers as long as the pod lives, and does not list them."""
    for i, share in enumerate(state.plans.shares(uid)):
        owner = Owner(uid, i)
        if share.role is not Role.INIT or state.table.of(owner) is not None:
            continue
        pool = [o for o in state.together(owner) if state.share(o).role is Role.INIT and state.table.of(o) is None]
        _remember(state, pool).confirmed = True


def _remember(state: State, owners: list[Owner]) -> Grant:
    """Counts what these shares of one pod hold in addition to its other grants, without knowing the units: on the GPUs
    of the pod's other containers, or of the plan, or else on every GPU."""
    uid, kind = owners[0].uid, state.share(owners[0]).kind
    planned = [uuid for owner in owners for uuid in state.plans.planned(owner) or ()]
    on = tuple(dict.fromkeys([*sorted(_beside(state, owners[0])), *planned]))
    if on:
        beyond = _lifelong(state, uid, owners, on)
        there = on[: max(state.share(owner).gpus for owner in owners)]
        missing = {uuid: max(beyond[uuid], 0) for uuid in there if beyond[uuid] > 0 or not kind.exclusive}
    else:
        most = max(each_of(state.share(owner)) for owner in owners)
        missing = dict.fromkeys(state.table.gpus, most)
    units = dict.fromkeys(missing, 1) if kind.exclusive else {}
    grant = state.table.give(None, units, kind=kind, unnamed={} if kind.exclusive else missing)
    for owner in owners:
        state.table.assign(owner, grant)
    return grant


def _beside(state: State, owner: Owner) -> set[str]:
    """The GPUs of the containers that took from the same init containers."""
    grants = (state.table.of(other) for other in state.together(owner))
    return {uuid for grant in grants if grant is not None for uuid in grant.gpus}


def _lifelong(state: State, uid: str, owners: list[Owner], on: tuple[str, ...]) -> dict[str, int]:
    """By GPU, what the pod holds there for its whole life, less what is in the table already."""
    gpus = state.facts.gpus
    position = {gpu.uuid: at for at, gpu in enumerate(gpus)}
    shares, places = state.plans.shares(uid), []
    for i, share in enumerate(shares):
        grant = state.table.of(Owner(uid, i))
        there = on[: share.gpus] if Owner(uid, i) in owners else tuple(grant.gpus if grant is not None else ())
        places.append(tuple([position[uuid] for uuid in there if uuid in position]))
    total = {gpus[at].uuid: amount for at, amount, _ in gpu_choice.charges(shares, state.facts, tuple(places))}
    has = state.table.of_pod(uid)
    return {uuid: total.get(uuid, 0) - state.table.used(uuid, has) for uuid in on}
