"""What a node says about its GPUs: the annotation `gpushare.io/gpus`, its schema, reader and writer.

A node without a usable annotation is read as one of Aliyun's plugin, from its capacity. `ConfigMap` lists of unhealthy
GPUs, which Aliyun's tools write, are read here too.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from gpushare.core.facts import names, objects, units
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, Refusal, Sold, Unit
from gpushare.core.placement.fit import NVIDIA_TOO, PLUGIN_DOWN, SELLS_GPUS

State = Literal["ready", "draining"]

VERSION = 1
MOST_GPUS_OF_A_NODE = 1024
MOST_SLOTS = 48  # of a GPU: more clients than MPS has on any GPU
MIB_ABOVE = 1024  # units of a GPU: nodes of Aliyun's plugin do not say their unit, and no GPU has 1 TiB
LISTED = "listed"  # why a GPU is unhealthy that only a ConfigMap calls so


class _Gpu(msgspec.Struct, kw_only=True):
    i: int
    uuid: str
    model: str = ""
    total: int
    ok: bool = True
    why: str = ""
    links: dict[str, int] | msgspec.UnsetType = msgspec.UNSET  # NVLinks, by uuid of the other GPU; absent: none


class _Published(msgspec.Struct, kw_only=True):
    v: int
    unit: Unit
    pin: Pin
    state: str = "ready"
    sell: Literal["shares", "gpus"] | msgspec.UnsetType = msgspec.UNSET  # absent: shares
    largest: int | msgspec.UnsetType = msgspec.UNSET  # units that one container may ask; absent or 0: no limit
    slots: int | msgspec.UnsetType = msgspec.UNSET  # of each GPU; absent or 0: none are sold
    mps: str | msgspec.UnsetType = msgspec.UNSET  # why the MPS daemon serves nobody; absent: it does, or nobody looks
    only: Literal["mps"] | msgspec.UnsetType = msgspec.UNSET  # no other kind of request can be served; absent: any can
    nvidia: Literal["whole"] | msgspec.UnsetType = msgspec.UNSET  # nvidia.com/gpu is sold too; absent: it is not
    sold: list[Sold] | msgspec.UnsetType = msgspec.UNSET  # only with sell: gpus
    gpus: list[_Gpu]


_decoder = msgspec.json.Decoder(_Published)


def write(
    unit: Unit,
    pin: Pin,
    gpus: Sequence[Gpu],
    *,
    state: State = "ready",
    limit: int = 0,
    slots: int = 0,
    mps_down: str = "",
    only_mps: bool = False,
    nvidia_whole: bool = False,
    sold: Sequence[Sold] = (),
) -> str:
    """The annotation of a node, see `NodeFacts` for what the words mean."""
    listed = [
        _Gpu(i=g.index, uuid=g.uuid, model=g.model, total=g.total, ok=g.healthy, why=g.why,
             links=dict(g.links) or msgspec.UNSET)
        for g in gpus
    ]  # fmt: skip
    published = _Published(
        v=VERSION,
        unit=unit,
        pin=pin,
        state=state,
        sell="gpus" if pin is Pin.NVIDIA else msgspec.UNSET,
        largest=limit or msgspec.UNSET,
        slots=slots or msgspec.UNSET,
        mps=mps_down or msgspec.UNSET,
        only="mps" if only_mps else msgspec.UNSET,
        nvidia="whole" if nvidia_whole else msgspec.UNSET,
        sold=list(sold) or msgspec.UNSET,
        gpus=listed,
    )
    return msgspec.json.encode(published).decode()


def read(node: objects.Node, unhealthy: frozenset[int], *, as_aliyun: bool = False) -> NodeFacts | None:
    """What a node offers, or None if it shares no GPU. `unhealthy`: indices that a ConfigMap lists. `as_aliyun`: its
    annotation is not to be believed."""
    published = None if as_aliyun else _decode(node)
    name, reserved = node.metadata.name, bool((node.metadata.annotations or {}).get(names.RESERVED))
    if published is None:
        gpus, unit = _equal_gpus(node, unhealthy)
        blocked = _blocked(node, draining=False)
        return NodeFacts(name, unit, Pin.ALIYUN, gpus, blocked, reserved=reserved) if gpus else None
    if not published.gpus:
        return None
    gpus = tuple([_read_gpu(gpu, unhealthy) for gpu in sorted(published.gpus, key=lambda gpu: gpu.i)])
    whole, selling = bool(published.nvidia), published.pin is Pin.NVIDIA
    ours = len(gpus) if whole else 0  # more nvidia.com/gpu than that is NVIDIA's
    blocked = SELLS_GPUS if selling else _blocked(node, draining=published.state != "ready", our_nvidia=ours)
    return NodeFacts(
        name,
        published.unit,
        published.pin,
        gpus,
        blocked,
        limit=published.largest or 0,
        slots=published.slots or 0,
        mps_down=published.mps or "",
        only_mps=bool(published.only),
        reserved=reserved,
        nvidia_whole=whole,
        sold=tuple(published.sold or ()),
    )


def slim(node: objects.Node) -> objects.Node:
    """The node without the annotations and resources that say nothing about GPUs: thousands are kept."""
    written = node.metadata.annotations or {}
    ours = (*names.PINNED, names.NVIDIA_GPU)
    capacity, allocatable = (
        None if amounts is None else {name: amounts[name] for name in ours if name in amounts}
        for amounts in (node.status.capacity, node.status.allocatable)
    )
    kept: tuple[str, ...] = (names.NODE_GPUS, names.RESERVED)
    annotations = {key: written[key] for key in kept if key in written} or None
    return objects.Node(
        objects.Metadata(name=node.metadata.name, annotations=annotations), objects.NodeStatus(capacity, allocatable)
    )


def contradicts(node: objects.Node) -> bool:
    """Whether a node's capacity says otherwise than its annotation. Unknown capacity contradicts nothing."""
    published = _decode(node)
    capacity = units.number(node.status.capacity, names.GPU_MEM)
    if published is None or not capacity:
        return False
    healthy = sum(gpu.total for gpu in published.gpus if gpu.ok)
    # Unhealthy GPUs count with what is still held on them, anything from nothing to all.
    return not healthy <= capacity <= sum(gpu.total for gpu in published.gpus)


def unhealthy(config_map: objects.ConfigMap) -> frozenset[int]:
    """The GPU indices that an `unhealthy-gpu-<node>` ConfigMap lists. Other words are ignored."""
    words = ((config_map.data or {}).get(names.UNHEALTHY_KEY) or "")[:65536].split(",")
    cleaned = (word.strip() for word in words)
    return frozenset(int(word) for word in cleaned if word.isascii() and word.isdigit() and len(word) < 6)


def _decode(node: objects.Node) -> _Published | None:
    text = (node.metadata.annotations or {}).get(names.NODE_GPUS)
    if text is None:
        return None
    try:
        published = _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return published if _is_sane(published) else None


def _is_sane(published: _Published) -> bool:
    indices = {gpu.i for gpu in published.gpus}
    uuids = {gpu.uuid for gpu in published.gpus if gpu.uuid}
    most = units.TIB_IN[published.unit]
    return (
        published.v == VERSION
        and published.pin is not Pin.ALIYUN
        and (published.pin is Pin.NVIDIA) == (published.sell == "gpus") == bool(published.sold)
        and (published.pin is Pin.DIRECT or not (published.slots or published.nvidia))  # plugins sell neither
        and (published.largest or 0) >= 0
        and 0 <= (published.slots or 0) <= MOST_SLOTS
        and (bool(published.slots) or not (published.mps or published.only))
        and all(sold.replicas > 0 for sold in published.sold or ())
        and len(indices) == len(uuids) == len(published.gpus) <= MOST_GPUS_OF_A_NODE
        and all(gpu.i >= 0 and 0 <= gpu.total <= most for gpu in published.gpus)
    )


def _read_gpu(gpu: _Gpu, unhealthy: frozenset[int]) -> Gpu:
    listed = gpu.i in unhealthy
    healthy = gpu.ok and not listed and gpu.total > 0  # a request for a whole GPU would fit one without memory
    links = tuple(sorted(gpu.links.items())) if gpu.links else ()
    return Gpu(gpu.i, gpu.uuid, gpu.total, healthy, gpu.why or (LISTED if listed else ""), gpu.model, links)


def _blocked(node: objects.Node, *, draining: bool, our_nvidia: int = 0) -> Refusal | None:
    offered = node.status.allocatable if node.status.allocatable is not None else node.status.capacity
    if units.number(offered, names.NVIDIA_GPU) > our_nvidia:
        return NVIDIA_TOO
    return PLUGIN_DOWN if draining or not units.number(offered, names.GPU_MEM) else None


def _equal_gpus(node: objects.Node, unhealthy: frozenset[int]) -> tuple[tuple[Gpu, ...], Unit]:
    """All that Aliyun's plugin says: how many GPUs, and the sum of their memory."""
    memory = units.number(node.status.capacity, names.GPU_MEM)
    count = units.number(node.status.capacity, names.GPU_COUNT)
    if not 0 < count <= MOST_GPUS_OF_A_NODE or memory < count:
        return (), "MiB"
    each = memory // count
    unit: Unit = "MiB" if each > MIB_ABOVE else "GiB"
    size = min(each, units.TIB_IN[unit])
    return tuple(Gpu(i, "", size, i not in unhealthy, LISTED if i in unhealthy else "") for i in range(count)), unit
