"""Whether a container may have the units that kubelet asks for. A grant is written into the table.

Pure. Normally these are the units that `prefer` named a moment ago, or units that an init container hands on. Other
units are granted only if they match a plan, or if no plan needs them. Units of several GPUs that no plan has, units
that a pod holds, and units of an unhealthy GPU are refused. As in `prefer`, after a first refusal the caller lists the
pods and tries again.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpushare.core.facts.model import Gpu, Kind, Refusal, Role
from gpushare.kubelet.unit_ids import Units
from gpushare.node.deviceplugin.allocation import init_pool, prefer
from gpushare.node.deviceplugin.allocation.plans import Gpus, Want
from gpushare.node.deviceplugin.allocation.state import State, count
from gpushare.node.deviceplugin.allocation.table import Grant, Owner

UNHEALTHY: Final = "{gpus} of {node} is unhealthy: {why}"
WITHHELD: Final = "{gpus} of {node} has no room for {amount}: pods that started before this plugin hold the rest"
NOT_HERE: Final = "kubelet asks for {example}, which is not a unit of {node}"
TWICE: Final = "kubelet asks for the same unit of {node} twice"
LONGEST: Final = 80  # characters of an id in a sentence


class Granted(NamedTuple):
    """The GPUs in the order of their indices, and the number of units; `owner` None: not known."""

    gpus: tuple[Gpu, ...]
    size: int
    owner: Owner | None


class _Match(NamedTuple):
    owner: Owner | None
    moved: dict[Owner, Gpus]
    pool: Grant | None = None


def grant(state: State, units: Units, kind: Kind, *, refreshed: bool) -> Granted | Refusal:
    size = count(units)
    match = _match(state, units, size, kind, refreshed)
    if isinstance(match, Refusal):
        return match
    refused = _not_free(state, units, match.pool, size, kind)
    if refused is not None:
        return refused
    _write(state, match, units, kind)
    state.plans.moved.update(match.moved)
    state.steer, state.busy_with = None, match.owner.uid if match.owner else ""
    gpus = sorted((state.table.gpus[uuid] for uuid in units), key=lambda gpu: gpu.index)
    return Granted(tuple(gpus), size, match.owner)


def unknown(state: State, example: str) -> Refusal:
    return Refusal("NotHere", NOT_HERE.format(example=example[:LONGEST], node=state.facts.name), forever=True)


def twice(state: State) -> Refusal:
    return Refusal("Twice", TWICE.format(node=state.facts.name), forever=True)


def _match(state: State, units: Units, size: int, kind: Kind, refreshed: bool) -> _Match | Refusal:
    """For which container these units are."""
    if state.table.holders(units, kind=kind):
        handed_on = init_pool.handed_on(state, units, size, kind)
        if isinstance(handed_on, Refusal):
            return handed_on
        pool, want = handed_on
        if len(units) > 1 and not kind.exclusive:
            return prefer.refusal(state, "Mixed", init_pool.MIXED, size, kind, counts=state.counts(units))
        return _Match(want.owner, _followers(state, want, units), pool)
    steer = state.steer
    as_told = steer is not None and steer.kind is kind and steer.units == units
    if steer is not None and as_told and (steer.owner is None or state.table.of(steer.owner) is None):
        return _Match(steer.owner, steer.moved)
    return _by_units(state, units, size, kind, refreshed)


def _by_units(state: State, units: Units, size: int, kind: Kind, refreshed: bool) -> _Match | Refusal:
    """kubelet took other units than it was told, or did not ask which to take."""
    counts = {uuid: bits.bit_count() for uuid, bits in units.items()}
    even = len(set(counts.values())) == 1
    wants = state.plans.wants(size, kind=kind, first=state.admitting())
    alike = [want for want in wants if even and want.share.gpus == len(units)]
    for want in alike:
        if want.gpus and set(want.gpus) == set(units):
            return _Match(want.owner, {})
    if not refreshed:
        return prefer.refusal(state, "NotSeen", prefer.NOT_SEEN, size, kind)
    for want in alike:
        if _is_spare(state, counts, kind, state.together(want.owner)):
            return _Match(want.owner, _followers(state, want, units))
    if not wants and (kind.exclusive or len(units) == 1) and _is_spare(state, counts, kind, ()):
        return _Match(None, {})
    if len(units) > 1 and not kind.exclusive:
        return prefer.refusal(state, "Mixed", init_pool.MIXED, size, kind, counts=state.counts(units))
    return prefer.no_way(state, wants, size, kind)


def _is_spare(state: State, counts: Mapping[str, int], kind: Kind, aside: Sequence[Owner]) -> bool:
    """Whether so much is free that no plan needs, except the plans `aside`."""
    outstanding = state.plans.outstanding(aside)
    return all(state.table.room(uuid, kind=kind) >= n + outstanding.get(uuid, 0) for uuid, n in counts.items())


def _followers(state: State, want: Want, units: Units) -> dict[Owner, Gpus]:
    """The shares that will take from these units, and their new plan: the GPUs of these units."""
    on = tuple(units)
    return (
        {} if want.share.kind.exclusive else {o: on for o in state.together(want.owner) if state.plans.planned(o) != on}
    )


def _not_free(state: State, units: Units, pool: Grant | None, size: int, kind: Kind) -> Refusal | None:
    """Refuses new units of an unhealthy GPU, and units that pods hold under other ids."""
    for uuid, bits in units.items():
        new = bits & ~(pool.units.get(uuid, 0) if pool else 0)
        gpu = state.table.gpus[uuid]
        if new and not gpu.healthy:
            return prefer.refusal(state, "Sick", UNHEALTHY, size, kind, (uuid,), why=gpu.why or "no reason is known")
        if new.bit_count() > state.table.room(uuid, kind=kind):
            return prefer.refusal(state, "Withheld", WITHHELD, size, kind, (uuid,))
    return None


def _write(state: State, match: _Match, units: Units, kind: Kind) -> None:
    owner, pool = match.owner, match.pool
    role = state.share(owner).role if owner else Role.APP
    if pool is not None and owner is not None and role is Role.INIT:
        for uuid, bits in units.items():
            pool.units[uuid] = pool.units.get(uuid, 0) | bits
        state.table.assign(owner, pool)
        return
    if pool is not None:
        for uuid in pool.units:
            pool.units[uuid] &= ~units.get(uuid, 0)
    state.table.give(owner, units, kind=kind).passing = role is Role.INIT
