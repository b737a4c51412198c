"""What the node object has to say about its GPUs, worked out from the driver's answer and from what pods hold.

Pure. An unhealthy GPU gets `"ok": false` with the reason in the annotation, and counts in the capacity only with what
pods still hold on it. The annotation is written, and read back, by the code that the extender reads it with
(`core/annotations/node_gpus.py`), so that both see the same node.

What happens next: `node/publishing/publisher.py` compares this with the node object and writes what differs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from gpushare.core.annotations import node_gpus, pod_gpus
from gpushare.core.facts import kinds, names, objects, units
from gpushare.core.facts.model import Data, Gpu, Kind, NodeFacts, Pin, PodFacts, Request, Sold, Unit
from gpushare.core.facts.mps import clients
from gpushare.gpu.device import Device
from gpushare.gpu.health import LOST
from gpushare.kubelet import status_limit

NOTHING = "no memory of it can be given out"
MIB_IN = {names.MIB: 1, names.GIB: 1024}
OTHER: dict[Unit, Unit] = {"MiB": "GiB", "GiB": "MiB"}
LONGEST_WHY = 200  # characters of a reason


class PublishConfig(Data, frozen=True):
    """How a node is published. Fixed at the start, except for the unit, the limit, the slots and what is withdrawn: see
    `unit`, `limit`, `served` and `withdrawn`; for `mps_down`; and for the links, which the driver tells later."""

    node: str
    unit: Unit
    pin: Pin
    reserve_mib: int = 0  # kept back on each GPU
    limit: int = 0  # units that one container may ask; 0: no limit
    sold: tuple[Sold, ...] = ()  # what it sells without the extender; then its pin is NVIDIA
    slots: int = 0  # MPS slots of each GPU
    mps_down: str = ""  # why the MPS daemon serves nobody
    only_mps: bool = False  # a daemon of ours has the GPUs, and only its clients can use them
    nvidia_whole: bool = False  # whole GPUs are sold as nvidia.com/gpu too
    old_slots: int = 0  # sold no longer, but the node object still has their capacity
    old_nvidia: bool = False
    links: Mapping[str, Mapping[str, int]] = {}  # NVLinks to other GPUs, by uuid; of others: as published before

    def facts(self, gpus: tuple[Gpu, ...]) -> NodeFacts:
        """The node with what it sells now."""
        return NodeFacts(
            self.node, self.unit, self.pin, gpus, limit=self.limit, slots=self.slots, nvidia_whole=self.nvidia_whole
        )

    def shown(self, gpus: tuple[Gpu, ...]) -> NodeFacts:
        """The node with what its annotation says. What is withdrawn stays in it until the capacity is gone: only the
        annotation tells our nvidia.com/gpu from that of NVIDIA's plugin."""
        slots, nvidia_whole = self.slots or self.old_slots, self.nvidia_whole or self.old_nvidia
        down = self.mps_down if slots else ""
        return msgspec.structs.replace(
            self.facts(gpus),
            slots=slots,
            mps_down=down,
            only_mps=self.only_mps and slots > 0,
            nvidia_whole=nvidia_whole,
        )


class Held(NamedTuple):
    """What pods hold on one GPU, and the kinds of their shares there."""

    units: int = 0
    slots: int = 0
    kinds: frozenset[Kind] = frozenset()

    def of(self, kind: Kind) -> int:
        """In what that kind is counted in: slots, GPUs, or units."""
        return self.slots if kind.slots else int(self.units > 0) if kind.exclusive else self.units


class Offered(Data, frozen=True):
    """What the node offers, and what pods hold of it."""

    facts: NodeFacts  # the annotation as the extender reads it
    held: dict[str, Held]  # by uuid


class Wanted(Offered, frozen=True):
    """What the node object has to say. `capacity` is empty on plugin nodes, where kubelet reports it. A node that sells
    whole GPUs has none of ours, also if it sold shares before."""

    annotation: str
    capacity: dict[str, int]


class Changes(Data, frozen=True):
    """What has to be written; None: nothing to write."""

    annotation: str | None
    capacity: dict[str, int] | None


def wanted(
    config: PublishConfig,
    devices: Sequence[Device],
    unhealthy: Mapping[str, str],
    before: Sequence[Gpu],
    pods: Collection[PodFacts],
    state: node_gpus.State,
) -> Wanted:
    """`devices`: what the driver shows now; `unhealthy`: reasons by uuid; `before`: what was published last."""
    sticky = any(_counts(pod) for pod in pods)
    on = held(config.shown(_listed(config, devices, unhealthy, before, sticky)), pods)
    # A GPU that is gone stays listed while it is unhealthy or a pod holds it: else its pods would count on every GPU.
    here = {device.uuid for device in devices} | unhealthy.keys() | on.keys()
    gpus = _listed(config, devices, unhealthy, [gpu for gpu in before if gpu.uuid in here], sticky)
    shown = config.shown(gpus)
    annotation = node_gpus.write(
        config.unit, config.pin, gpus, state=state, limit=config.limit, slots=shown.slots,
        mps_down=shown.mps_down, only_mps=shown.only_mps, nvidia_whole=shown.nvidia_whole, sold=config.sold,
    )  # fmt: skip
    capacity = _capacity(config.facts(gpus), shown, on)
    facts = read(config.node, annotation, capacity)
    return Wanted(
        facts or NodeFacts(config.node, config.unit, config.pin, ()),
        on,
        annotation,
        {Pin.DIRECT: capacity, Pin.NVIDIA: dict.fromkeys(names.PINNED, 0)}.get(config.pin, {}),
    )


def held(facts: NodeFacts, pods: Iterable[PodFacts]) -> dict[str, Held]:
    """What pods hold, by uuid. A pod whose GPU is not known is left out: it may be on a healthy one."""
    on: dict[str, Held] = {}
    for pod in pods:
        charges = (pod_gpus.read(pod, facts) if _counts(pod) else None) or ()
        plan = pod_gpus.planned(pod, facts) if charges else None
        for gpu, amount, slots in charges:
            uuid = facts.gpus[gpu].uuid
            there = {s.kind for s, chosen in zip(*plan, strict=True) if gpu in chosen} if plan is not None else set()
            before = on.get(uuid, Held())
            on[uuid] = Held(before.units + amount, before.slots + slots, before.kinds | there)
    return on


def changes(wants: Wanted, node: objects.Node) -> Changes:
    """What is wrong or missing on the node as it is now."""
    annotation = (node.metadata.annotations or {}).get(names.NODE_GPUS)
    has = {name: units.number(node.status.capacity, name) for name in wants.capacity}
    return Changes(
        None if annotation == wants.annotation else wants.annotation, None if has == wants.capacity else wants.capacity
    )


def published(node: objects.Node) -> NodeFacts | None:
    """What was published here before this process started. Tells about GPUs that are lost by now."""
    facts = node_gpus.read(node, frozenset())
    return facts if facts is not None and facts.pin is not Pin.ALIYUN else None


def offered(node: objects.Node, pods: Iterable[PodFacts]) -> Offered | None:
    """As the node object says it, for a process that publishes nothing there. None: nothing is published."""
    facts = published(node)
    return Offered(facts, held(facts, pods)) if facts is not None else None


def unit(config: PublishConfig, devices: Sequence[Device], last: Unit | None, pods: Iterable[PodFacts]) -> Unit:
    """The unit to count in: the configured one, unless pods here were given their memory in the other.

    A number on a pod keeps the unit in which the pod was bound. If the node changed its unit, kube-scheduler would add
    MiB to GiB, and kubelet would have ids of units that no longer exist. So the unit that was published `last` stays
    until no such pod is left. If nothing was published, the other unit counts only if all pods here have it. A node
    that counts in the configured unit never changes back: else the owner of one pod could change the unit of the node.
    """
    if last == config.unit:
        return last
    facts = NodeFacts(config.node, config.unit, config.pin, _listed(config, devices, {}, (), sticky=False))
    holding = [pod for pod in pods if not pod.finished and not pod_gpus.sees_nothing(pod, facts)]
    given = {pod_gpus.written_in(pod, facts) or last or config.unit for pod in holding}
    other = OTHER[config.unit]
    return other if other in given and (last is not None or config.unit not in given) else config.unit


def limit(pin: Pin, unit: Unit, node: objects.Node) -> int:
    """Units that one container may ask on this node; 0: no limit. Only what a device plugin gives is limited."""
    return status_limit.most_units(node.status.kubelet_version, unit) if pin is Pin.PLUGIN else 0


def served(config: PublishConfig, devices: Sequence[Device]) -> PublishConfig:
    """The configuration with no more MPS slots than each GPU of the node can serve."""
    most = clients.most([device.capability for device in devices])
    return msgspec.structs.replace(config, slots=min(config.slots, most))


def withdrawn(config: PublishConfig, before: NodeFacts | None, node: objects.Node) -> PublishConfig:
    """The configuration with what was sold `before` and is no longer, as long as the node object has it: kubelet makes
    the allocatable amount out of the capacity some seconds later."""
    if before is None or config.pin is not Pin.DIRECT:
        return config
    has_slots, has_nvidia = (
        max(units.number(amounts, name) for amounts in (node.status.capacity, node.status.allocatable))
        for name in (names.MPS_GPU, names.NVIDIA_GPU)
    )
    return msgspec.structs.replace(
        config,
        old_slots=before.slots if has_slots else 0,
        old_nvidia=before.nvidia_whole and has_nvidia > 0,
    )


def recounted(facts: NodeFacts, unit: Unit) -> tuple[Gpu, ...]:
    """The GPUs of a node with their sizes in another unit."""
    sizes = MIB_IN[facts.unit], MIB_IN[unit]
    return tuple([msgspec.structs.replace(gpu, total=gpu.total * sizes[0] // sizes[1]) for gpu in facts.gpus])


def read(node: str, annotation: str, capacity: Mapping[str, int]) -> NodeFacts | None:
    """The node as the extender reads it; None if it has no GPU."""
    metadata = objects.Metadata(name=node, annotations={names.NODE_GPUS: annotation})
    return node_gpus.read(objects.Node(metadata, objects.NodeStatus(capacity=dict(capacity))), frozenset())


def total(memory_mib: int, config: PublishConfig) -> int:
    """Units of a GPU that may be given out: rounded down, as Aliyun's plugin does."""
    return max(memory_mib - config.reserve_mib, 0) // MIB_IN[config.unit]


def _counts(pod: PodFacts) -> bool:
    return isinstance(pod.request, Request) and not pod.finished


def _listed(
    config: PublishConfig, devices: Sequence[Device], unhealthy: Mapping[str, str], before: Sequence[Gpu], sticky: bool
) -> tuple[Gpu, ...]:
    """All GPUs that are there, and those that were there before, by index."""
    there = [(device.uuid, device.index) for device in devices]
    known = [(gpu.uuid, gpu.index) for gpu in before]
    # Pods' annotations may name GPUs by index: while there are such pods, a GPU keeps the index it was published with.
    index = _indices(known + there if sticky else there + known)
    linked = {gpu.uuid: dict(gpu.links) for gpu in before} | dict(config.links)
    links = {
        uuid: tuple(sorted((other, count) for other, count in linked.get(uuid, {}).items() if other in index))
        for uuid in index
    }
    gpus = [
        _gpu(index[d.uuid], d.uuid, total(d.memory_mib, config), unhealthy.get(d.uuid, ""), d.name, links[d.uuid])
        for d in devices
    ] + [
        _gpu(index[g.uuid], g.uuid, g.total, unhealthy.get(g.uuid, LOST), g.model, links[g.uuid])
        for g in before
        if all(g.uuid != device.uuid for device in devices)
    ]  # fmt: skip
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _indices(wishes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """An index for each GPU, no two the same: the one it wishes, or the first that is free."""
    given: dict[str, int] = {}
    for uuid, wish in wishes:
        if uuid not in given:
            taken = set(given.values())
            given[uuid] = wish if wish not in taken else next(i for i in count() if i not in taken)
    return given


def _gpu(index: int, uuid: str, size: int, why: str, model: str, links: tuple[tuple[str, int], ...]) -> Gpu:
    why = why or ("" if size else NOTHING)
    return Gpu(index, uuid, size, not why, why[:LONGEST_WHY], model, links)


def _capacity(sold: NodeFacts, shown: NodeFacts, on: Mapping[str, Held]) -> dict[str, int]:
    """By resource, what is sold; 0 of what was withdrawn. A resource that is not ours is not touched."""
    return {
        resource: sum(_amount(kind, sold, gpu, on.get(gpu.uuid, Held())) for gpu in sold.gpus)
        for resource, kind in kinds.BY_RESOURCE.items()
        if kind.not_sold is None or any(kind.sells(shown, gpu) for gpu in shown.gpus)
    }


def _amount(kind: Kind, facts: NodeFacts, gpu: Gpu, held: Held) -> int:
    """All of a healthy GPU; of an unhealthy one what is held there. Without it kube-scheduler, which compares the sum
    of all requests with the capacity, would not use the free memory of the healthy ones. Also what pods still have of a
    kind that is not sold any more, or of slots that are fewer now: kubelet would not start such a pod again."""
    sold = kind.sells(facts, gpu)
    if not sold or kind.slots:
        still = held.of(kind) if kind in held.kinds else 0
        return max(sold if gpu.healthy else 0, still)
    return sold if gpu.healthy else min(held.of(kind), sold)
