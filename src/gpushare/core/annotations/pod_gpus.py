"""Which GPUs a pod has: the annotations of a binding, written and read.

Three forms are read: the GPU index of Aliyun's gpushare, the allocation of its later versions, and our own by uuid. A
binding writes all of them. Annotations only *choose* GPUs: amounts come from the spec. An annotation is ignored if it
does not match the spec, if it names a GPU that the node does not have, or if it contradicts another one. A pod that was
bound while its node counted in another unit is charged by what it really holds. The memory of an MPS share is not in
the spec: it is what the allocation says, which only gpushare may write.
"""

import msgspec

from gpushare.core.annotations import mps_limits
from gpushare.core.annotations.node_gpus import MIB_ABOVE
from gpushare.core.facts import kinds, names, units
from gpushare.core.facts.model import Charge, Charges, NodeFacts, Pin, Places, PodFacts, Request, Role, Share, Unit
from gpushare.core.placement import gpu_choice

Allocation = dict[str, dict[str, int]]
Plan = tuple[tuple[Share, ...], Places]

OTHER_UNIT = 32  # times larger or smaller: in the other unit a size differs by 1024, for other reasons by far less

_allocation = msgspec.json.Decoder(Allocation)


def read(pod: PodFacts, facts: NodeFacts) -> Charges | None:
    """What a bound pod holds on each GPU of its node, or None if no usable annotation names its GPUs."""
    if sees_nothing(pod, facts):
        return ()
    plan = planned(pod, facts)
    if plan is None:
        return None
    unit = counted_in(pod, facts)
    held = charges(plan[0], facts, plan[1], unit)
    return _as_written(pod, facts, plan, held, unit) if any(share.kind.slots for share in plan[0]) else held


def _as_written(pod: PodFacts, facts: NodeFacts, plan: Plan, held: Charges, unit: Unit) -> Charges | None:
    """The charges of a pod with MPS shares: on each GPU it holds what the allocation has there in all, but a whole GPU
    wholly, also if the GPU has become larger since. None if that names other GPUs, or has another amount where the spec
    tells it."""
    written = _decoded(pod.annotation(names.ALLOCATION))
    on: dict[int, int] = {}
    whole = {gpu for share, chosen in zip(*plan, strict=True) if share.kind.exclusive for gpu in chosen}
    for share, chosen in zip(*plan, strict=True):
        entry = {_position(index, facts): amount for index, amount in written.get(str(share.position), {}).items()}
        stays = share.role is not Role.INIT
        if stays and (entry.keys() != set(chosen) or (share.each and set(entry.values()) != {share.each})):
            return None
        for gpu, amount in entry.items():
            if gpu is None or amount <= 0:
                return None
            on[gpu] = on.get(gpu, 0) + amount
    if on.keys() != {charge.gpu for charge in held}:
        return None
    now = {gpu: units.converted(amount, unit, facts.unit) for gpu, amount in on.items()}
    now |= {gpu: facts.gpus[gpu].total for gpu in whole}
    return tuple([Charge(gpu, now[gpu], slots) for gpu, _, slots in held])


def given(pod: PodFacts, facts: NodeFacts) -> list[tuple[Share, int, int]]:
    """Each container of a bound pod with each of its GPUs and the bytes that it was given there. Empty if no usable
    annotation names its GPUs."""
    plan = planned(pod, facts) if read(pod, facts) else None
    if plan is None:
        return []
    unit, written = counted_in(pod, facts), _decoded(pod.annotation(names.ALLOCATION))
    return [
        (share, gpu, _bytes(share, gpu, facts, unit, written)) for share, on in zip(*plan, strict=True) for gpu in on
    ]


def _bytes(share: Share, gpu: int, facts: NodeFacts, unit: Unit, written: Allocation) -> int:
    """An init container with an MPS share has no amount of its own in the allocation: it counts as new ones do."""
    there = facts.gpus[gpu]
    if share.each:
        return share.each * units.BYTES_IN[unit]
    amount = written.get(str(share.position), {}).get(str(there.index), 0)
    if share.kind.slots and share.role is not Role.INIT and amount > 0:
        return amount * units.BYTES_IN[unit]
    return share.on(there, facts) * units.BYTES_IN[facts.unit]


def sees_nothing(pod: PodFacts, facts: NodeFacts) -> bool:
    """Whether a pod is on a directly pinned node without any annotation of ours: somebody else bound it, and its
    containers see no GPU. With any annotation of ours, gpushare bound it: its containers may have started with other
    annotations than it has now, so it counts."""
    return facts.pin is Pin.DIRECT and pod.pinned and not pod.annotations


def charges(shares: tuple[Share, ...], facts: NodeFacts, places: Places, unit: Unit) -> Charges:
    """What shares counted in that unit hold, in the node's unit. Only the sum on each GPU is rounded."""
    if unit == facts.unit:
        return gpu_choice.charges(shares, facts, places)
    if unit == "GiB":
        larger = [msgspec.structs.replace(s, units=units.converted(s.units, unit, facts.unit)) for s in shares]
        return gpu_choice.charges(larger, facts, places)
    gpus = [msgspec.structs.replace(gpu, total=units.converted(gpu.total, facts.unit, unit)) for gpu in facts.gpus]
    finer = msgspec.structs.replace(facts, unit=unit, gpus=tuple(gpus))
    held = gpu_choice.charges(shares, finer, places)
    return tuple([Charge(gpu, units.converted(amount, unit, facts.unit), slots) for gpu, amount, slots in held])


def counted_in(pod: PodFacts, facts: NodeFacts) -> Unit:
    """The unit of a bound pod's amounts: the node's, unless the pod was certainly bound in the other."""
    unit = written_in(pod, facts) or facts.unit
    if unit == "GiB" or unit == facts.unit:
        return unit
    # In MiB it would be charged less. So its amount must prove it too: no GPU here has that many GiB.
    each = max([share.each for share in pod.request.shares]) if isinstance(pod.request, Request) else pod.spec_units
    if not each:  # the spec does not tell its memory
        written = _decoded(pod.annotation(names.ALLOCATION))
        each = max([amount for entry in written.values() for amount in entry.values()], default=0)
    return unit if each > max([gpu.total for gpu in facts.gpus], default=0) else facts.unit


def written_in(pod: PodFacts, facts: NodeFacts) -> Unit | None:
    """The unit of the node when a pod was bound. The annotations tell it: they have the size of its first GPU. None if
    they have not."""
    written = pod.annotation(names.ALIYUN_DEV)
    if written is None or not (written.isascii() and written.isdigit() and len(written) < 10):
        return None
    first = _position(pod.annotation(names.ALIYUN_IDX), facts)
    size, now = int(written), facts.gpus[first].total if first is not None else 0
    now = now or max([gpu.total for gpu in facts.gpus], default=0)
    if not size or not now:
        return None
    if facts.unit == "MiB":
        return "GiB" if size * OTHER_UNIT < now and size <= MIB_ABOVE else "MiB"
    return "MiB" if size > now * OTHER_UNIT else "GiB"


def planned(pod: PodFacts, facts: NodeFacts) -> Plan | None:
    """The GPUs of each share of a bound pod, and its shares as they were placed: Aliyun's extender splits none."""
    if not isinstance(pod.request, Request):
        return None
    shares = pod.request.shares
    if facts.pin is Pin.DIRECT and pod.request.pin is Pin.DIRECT:
        places = _from_visible(pod, shares, facts)
        return None if places is None else (shares, places)
    index = _position(pod.annotation(names.ALIYUN_IDX), facts)
    written = pod.annotation(names.ALLOCATION)
    if written is None:
        return None if index is None else _all_on_one(shares, index)
    places = _from_allocation(written, shares, facts)
    if places is None or (pod.annotation(names.ALIYUN_IDX) is not None and index not in places[_first(shares)]):
        return None
    return shares, places


def write(request: Request, facts: NodeFacts, places: Places, *, extender: str, nanoseconds: int) -> dict[str, str]:
    """The annotations of a binding. Those of Aliyun's gpushare name one GPU only: the first."""
    first = facts.gpus[places[_first(request.shares)][0]]
    held = sum(charge.units for charge in gpu_choice.charges(request.shares, facts, places))
    annotations = {
        names.ALIYUN_IDX: str(first.index),
        names.ALIYUN_POD: str(held),
        names.ALIYUN_DEV: str(first.total),
        names.ALIYUN_ASSIGNED: "false",
        names.ALIYUN_ASSUME_TIME: str(nanoseconds),
        names.ALLOCATION: msgspec.json.encode(allocation(request.shares, facts, places)).decode(),
        names.EXTENDER: extender,
    }
    if request.pin is Pin.DIRECT:
        for share, chosen in zip(request.shares, places, strict=True):
            annotations[share.visible] = ",".join(facts.gpus[gpu].uuid for gpu in chosen)
    return annotations | mps_limits.write(request, facts, places)


def allocation(shares: tuple[Share, ...], facts: NodeFacts, places: Places) -> Allocation:
    """`{"<container>": {"<gpu index>": units}}`. Containers that stay have their own amounts. What init containers hold
    beyond that is written under the largest of them."""
    if len(shares) == 1 and shares[0].role is not Role.INIT:  # nearly all pods
        share, gpus = shares[0], facts.gpus
        return {str(share.position): {str(gpus[gpu].index): share.on(gpus[gpu], facts) for gpu in places[0]}}
    result: dict[int, dict[str, int]] = {}
    beyond = {gpu: amount for gpu, amount, _ in gpu_choice.charges(shares, facts, places)}
    for share, chosen in zip(shares, places, strict=True):
        if share.role is not Role.INIT:
            each = {gpu: share.on(facts.gpus[gpu], facts) for gpu in chosen}
            result[share.position] = {str(facts.gpus[gpu].index): amount for gpu, amount in each.items()}
            for gpu, amount in each.items():
                beyond[gpu] -= amount
    for gpu, amount in sorted(beyond.items()):
        if amount > 0:
            holders = [s for s, chosen in zip(shares, places, strict=True) if s.role is Role.INIT and gpu in chosen]
            largest = max(holders, key=lambda s: (s.kind.exclusive, s.on(facts.gpus[gpu], facts), -s.position))
            result.setdefault(largest.position, {})[str(facts.gpus[gpu].index)] = amount
    return {str(position): result[position] for position in sorted(result)}


def _first(shares: tuple[Share, ...]) -> int:
    return min(range(len(shares)), key=lambda i: shares[i].position)


def _position(index: str | None, facts: NodeFacts) -> int | None:
    """The position of the GPU with that index in the node's list."""
    if index is not None and index.isascii() and index.isdigit() and len(index) < 6:
        for position, gpu in enumerate(facts.gpus):
            if gpu.index == int(index):
                return position
    return None


def _all_on_one(shares: tuple[Share, ...], gpu: int) -> tuple[tuple[Share, ...], Places] | None:
    """Aliyun's extender puts all containers of a pod on one GPU, whatever else the pod says."""
    if any(share.kind.exclusive and share.gpus > 1 for share in shares):
        return None
    together = tuple([Share(s.container, s.position, s.role, s.kind, s.units) for s in shares])
    return together, ((gpu,),) * len(shares)


def _from_visible(pod: PodFacts, shares: tuple[Share, ...], facts: NodeFacts) -> Places | None:
    known = {gpu.uuid: position for position, gpu in enumerate(facts.gpus)}
    places = []
    for share in shares:
        chosen = [known.get(uuid, -1) for uuid in (pod.annotation(share.visible) or "").split(",")]
        if -1 in chosen or len(set(chosen)) != share.gpus or len(chosen) != share.gpus:
            return None
        places.append(tuple(chosen))
    return tuple(places)


def _from_allocation(text: str, shares: tuple[Share, ...], facts: NodeFacts) -> Places | None:
    written = _decoded(text)
    places: list[tuple[int, ...]] = []
    for share in shares:
        entry = written.get(str(share.position), {})
        chosen = [_position(index, facts) for index in entry]
        known = tuple([gpu for gpu in chosen if gpu is not None])
        stays = share.role is not Role.INIT
        matches = len(known) == share.gpus and (share.kind.counts_gpus or set(entry.values()) == {share.each})
        if len(known) != len(chosen) or len(set(known)) != len(known) or (stays and not matches):
            return None
        places.append(known)
    placed = _with_inits(tuple(places), shares)
    if placed is None or not _same(allocation(shares, facts, placed), written, shares):
        return None
    return placed


def _decoded(text: str | None) -> Allocation:
    """Empty if there is none, or none that can be read."""
    try:
        return _allocation.decode(text or "{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _with_inits(places: Places, shares: tuple[Share, ...]) -> Places | None:
    """The places with those of init containers that are not written down, because they hold nothing beyond the others:
    they were on the GPUs of the pool that later containers use too, or on the rest of the pool."""
    result = list(places)
    for kind in kinds.KINDS:
        alike = [i for i, share in enumerate(shares) if share.kind is kind]
        inits = [i for i in alike if shares[i].role is Role.INIT]
        drawing = [i for i in alike if inits and i > inits[0] and i not in inits]
        pool = list(dict.fromkeys(gpu for i in (*drawing, *inits) for gpu in places[i]))
        for i in alike:
            if i in inits:
                result[i] = tuple(pool[: shares[i].gpus])
                if len(result[i]) < shares[i].gpus:
                    return None
            elif kind.exclusive:
                pool = [gpu for gpu in pool if gpu not in places[i]]  # that container keeps them
    return tuple(result)


def _same(ours: Allocation, written: Allocation, shares: tuple[Share, ...]) -> bool:
    """Equal, except where the spec does not tell the amount: the size of whole GPUs, in which the node may have counted
    in another unit then, and the memory of MPS shares."""
    untold = {str(share.position) for share in shares if share.kind.counts_gpus}
    return ours.keys() == written.keys() and all(
        ours[key] == written[key] or (key in untold and ours[key].keys() == written[key].keys()) for key in ours
    )
