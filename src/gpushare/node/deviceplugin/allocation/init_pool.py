"""Units that an init container hands on to a later container of its pod.

Pure. For a later container kubelet first takes units of the pod's ordinary init containers, in random order and as many
as it can. That is the only case in which kubelet may ask for units that a pod already holds.
"""

from typing import Final

from gpushare.core.facts.model import Kind, Refusal, Role
from gpushare.kubelet.unit_ids import Units
from gpushare.node.deviceplugin.allocation.plans import Want, size_of
from gpushare.node.deviceplugin.allocation.state import State, count
from gpushare.node.deviceplugin.allocation.table import Grant, Owner

HELD: Final = "kubelet asks for units of {gpus} of {node} that {holder} holds"
MIXED: Final = "kubelet chose units of several GPUs of {node} ({counts}), but no container is planned on these GPUs"
NOT_GIVEN: Final = "kubelet reuses units of {gpus} of {node} that no init container was given"


def handed_on(state: State, units: Units, size: int, kind: Kind) -> tuple[Grant, Want] | Refusal:
    """The grant these units come from, and the container of `size` they go to; or why they may not be handed on."""
    node, holders = state.facts.name, state.table.holders(units, kind=kind)
    if not holders:
        return Refusal("NotGiven", NOT_GIVEN.format(gpus=state.gpus(units), node=node))
    pool = holders[0]
    want = _taker(state, pool, units, size, kind) if len(holders) == 1 else None
    if want is None:
        return Refusal("Held", HELD.format(gpus=state.gpus(units), node=node, holder=state.holder(holders)))
    if len(pool.gpus) > 1 and not kind.exclusive:  # an init container got what was planned for one over several GPUs
        return Refusal("Mixed", MIXED.format(node=node, counts=state.counts(pool.units)))
    return pool, want


def _taker(state: State, pool: Grant, units: Units, size: int, kind: Kind) -> Want | None:
    """The container of that size to which units of this grant may go."""
    handed = count({uuid: bits & pool.units.get(uuid, 0) for uuid, bits in units.items()})
    if pool.kind is not kind or pool.confirmed or handed != min(size, pool.size):
        return None
    uids = {owner.uid for owner in pool.owners} if pool.passing else set()
    wants = state.plans.wants(size, kind=kind, first=next(iter(uids), ""))
    for want in wants:
        if want.owner.uid in uids:
            return want
    for want in wants:  # of equal requests it was taken for another one; that it is handed on tells them apart
        init = _init_before(state, want, pool.size)
        if init is not None:
            state.relabel(pool, init)
            return want
    return None


def _init_before(state: State, want: Want, size: int) -> Owner | None:
    """An init container of that size which kubelet has started before, if it is not sure what that one got."""
    for i, share in enumerate(state.plans.shares(want.owner.uid)[: want.owner.share]):
        owner = Owner(want.owner.uid, i)
        got = state.table.of(owner)
        alike = share.role is Role.INIT and share.kind is want.share.kind and size_of(share) == size
        if alike and (got is None or not got.confirmed):
            return owner
    return None
