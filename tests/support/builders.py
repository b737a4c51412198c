"""Nodes and pods in a few words, made the way the API server shows them and read the way the extender reads them.

`node(8, 8)` and `pod(4)` are the smallest useful ones: two GPUs of 8 MiB pinned directly, and a pod whose one
container asks 4 of them. Everything else is a keyword.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpushare.core.annotations import node_gpus, pod_gpus
from gpushare.core.facts import kinds, names, objects, request
from gpushare.core.facts.model import Gpu, Kind, NodeFacts, Pin, Places, PodFacts, Request, Role, Share, Unit
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState

_numbers = itertools.count()


# Nodes


def node(
    *totals: int,
    name: str = "n",
    pin: str = "direct",
    unit: str = "MiB",
    unhealthy: Iterable[int] = (),
    uuids: Sequence[str] | None = None,
    indices: Sequence[int] | None = None,
    state: str = "ready",
    nvidia: int = 0,
    capacity: int | None = None,
    limit: int = 0,
    slots: int = 0,
    mps_down: str = "",
    only_mps: bool = False,
    nvidia_whole: bool = False,
    sold: Sequence[dict[str, Any]] = ({"resource": names.NVIDIA_GPU},),
    reserved: str = "",
) -> objects.Node:
    """A node with GPUs of these sizes. `pin="aliyun"`: one of Aliyun's plugin, which publishes nothing. `sold`: by a
    node with `pin="nvidia"`."""
    assert pin in list(Pin), pin
    sizes: dict[str, objects.Quantity] = {names.GPU_MEM: sum(totals) if capacity is None else capacity}
    sizes[names.GPU_COUNT] = len(totals)
    if slots:
        sizes[names.MPS_GPU] = slots * len(totals)
    if nvidia or nvidia_whole:
        sizes[names.NVIDIA_GPU] = nvidia or len(totals)
    if pin == "nvidia":
        sizes = {entry["resource"]: entry.get("replicas", 1) * len(totals) for entry in sold}
    annotations = {}
    if pin != "aliyun":
        gpus = [
            {
                "i": i if indices is None else indices[i],
                "uuid": f"GPU-{name}-{i}" if uuids is None else uuids[i],
                "total": total,
                "ok": i not in set(unhealthy),
                "model": "T4",
            }
            for i, total in enumerate(totals)
        ]
        published: dict[str, Any] = {"v": 1, "unit": unit, "pin": pin, "state": state, "gpus": gpus}
        maybe = {"largest": limit, "slots": slots, "mps": mps_down, "nvidia": "whole" if nvidia_whole else ""}
        maybe["only"] = "mps" if only_mps else ""
        published |= {key: value for key, value in maybe.items() if value}
        if pin == "nvidia":
            published |= {"sell": "gpus", "sold": sold}
        annotations[names.NODE_GPUS] = msgspec.json.encode(published).decode()
    if reserved:
        annotations[names.RESERVED] = reserved
    return objects.Node(objects.Metadata(name=name, annotations=annotations), objects.NodeStatus(sizes, sizes))


def facts(*totals: int, unhealthy: Iterable[int] = (), pin: str = "direct", **more: Any) -> NodeFacts:
    """The same, as the core sees it."""
    listed = frozenset(unhealthy) if pin == "aliyun" else frozenset()
    read = node_gpus.read(node(*totals, unhealthy=unhealthy, pin=pin, **more), listed)
    assert read is not None
    return read


# Pods


def container(
    name: str,
    memory: objects.Quantity | None = None,
    *,
    whole: objects.Quantity | None = None,
    nvidia: objects.Quantity | None = None,
    mps: objects.Quantity | None = None,
    sidecar: bool = False,
    visible: str = "",
) -> objects.Container:
    """A container. `visible`: the annotation that its env takes its GPUs from."""
    asked = {names.GPU_MEM: memory, names.GPU_COUNT: whole, names.NVIDIA_GPU: nvidia, names.MPS_GPU: mps}
    limits = {resource: amount for resource, amount in asked.items() if amount is not None}
    env = [env_of(visible)] if visible else None
    return objects.Container(
        name, "Always" if sidecar else None, objects.ResourceNeeds(limits) if limits else None, env
    )


def asking(name: str, kind: str, amount: objects.Quantity, *, sidecar: bool = False) -> objects.Container:
    """A container that asks by one of the keywords of `container`: memory, whole, nvidia or mps."""
    limits: dict[str, Any] = {kind: amount}
    return container(name, **limits, sidecar=sidecar)


def env_of(key: str, name: str = names.VISIBLE_DEVICES) -> objects.EnvVar:
    return objects.EnvVar(name, objects.EnvSource(objects.FieldRef(f"metadata.annotations['{key}']")))


def admitted(apps: Sequence[objects.Container], inits: Sequence[objects.Container]) -> None:
    """What the admission policy does: every container that asks gets its env from an annotation of its own."""
    for prefix, containers in (("", apps), ("init-", inits)):
        for i, one in enumerate(containers):
            if one.resources is not None:
                one.env = [env_of(f"{names.VISIBLE_PREFIX}{prefix}{i}")]
                if names.MPS_GPU in (one.resources.limits or {}):
                    one.env.insert(0, env_of(f"{names.MPS_LIMIT_PREFIX}{prefix}{i}", names.MPS_LIMIT))


def api_pod(
    *memory: int,
    name: str = "",
    uid: str = "",
    namespace: str = "default",
    init: Sequence[int] = (),
    sidecars: Sequence[int] = (),
    whole: int = 0,
    nvidia: int = 0,
    mps: int = 0,
    slot_memory: str | None = None,
    containers: Sequence[objects.Container] | None = None,
    inits: Sequence[objects.Container] | None = None,
    direct: bool = True,
    split: object = None,
    split_label: object = None,
    unit: str | None = None,
    policy: str | None = None,
    priority: int | None = None,
    on: str = "",
    notes: Mapping[str, str] | None = None,
    phase: str = "Pending",
    reason: str | None = None,
    nominated: str | None = None,
    terminating: bool = False,
    unschedulable: str | None = None,
    claim_volume: bool = False,
    created: str = "2026-11-15T12:00:00Z",
    only: str | None = None,
    owner: str = "",
) -> objects.Pod:
    """A pod whose containers ask `memory` each, plus one for `whole` GPUs, one for as many by NVIDIA's name (`nvidia`),
    and one for `mps` shares of `slot_memory`. `direct`: the admission policy saw it. `only`: it is one of
    gpu-scheduler, and names that node. `owner`: the uid of its controller.

    `init` and `sidecars` come in this order before the others; `containers` and `inits` say it all instead.
    """
    apps = list(containers) if containers is not None else [container(f"c{i}", n) for i, n in enumerate(memory)]
    if whole:
        apps.append(container("whole", whole=whole))
    if nvidia:
        apps.append(container("nvidia", nvidia=nvidia))
    if mps:
        apps.append(container("mps", mps=mps))
    before = list(inits) if inits is not None else [container(f"i{i}", n) for i, n in enumerate(init)]
    before += [container(f"s{i}", n, sidecar=True) for i, n in enumerate(sidecars)]
    if direct:
        admitted(apps, before)
    annotations = dict(notes or {})
    slot, named = (names.SLOT_MEMORY[0], slot_memory), (names.NODE_NAME, only)
    for key, value in ((names.GPU_COUNT, split), (names.MEMORY_UNIT, unit), (names.POLICY, policy), slot, named):
        if value is not None:
            annotations[key] = str(value)
    number = next(_numbers)
    condition = objects.Condition("PodScheduled", "False", "Unschedulable", unschedulable)
    return objects.Pod(
        objects.Metadata(
            name=name or f"p{number}",
            namespace=namespace,
            uid=uid or f"uid-{name or number}",
            creation_timestamp=created,
            deletion_timestamp="2026-11-15T12:30:00Z" if terminating else None,
            annotations=annotations,
            labels=None if split_label is None else {names.GPU_COUNT: str(split_label)},
            owner_references=[objects.OwnerReference("ReplicaSet", owner, True)] if owner else None,
        ),
        objects.PodSpec(
            node_name=on or None,
            scheduler_name=names.GPU_SCHEDULER if only is not None else None,
            priority=priority,
            containers=apps,
            init_containers=before,
            volumes=[objects.Volume(persistent_volume_claim={"claimName": msgspec.Raw(b'"data"')})]
            if claim_volume
            else [],
        ),
        objects.PodStatus(
            phase, reason, None, nominated, [condition] if unschedulable is not None else None
        ),
    )  # fmt: skip


def pod(*memory: int, default_unit: Unit | None = None, **more: Any) -> PodFacts:
    """The same, as the core sees it."""
    return request.facts(api_pod(*memory, **more), default_unit)


def asks(*memory: int, **more: Any) -> Request:
    """What such a pod asks."""
    asked = pod(*memory, **more).request
    assert isinstance(asked, Request), asked
    return asked


def bound(seen: PodFacts, where: NodeFacts, places: Places) -> PodFacts:
    """The pod as it stands once we have bound it to these GPUs."""
    assert isinstance(seen.request, Request)
    notes = pod_gpus.write(seen.request, where, places, extender="0a1b2c3d", nanoseconds=1)
    return request.bound(seen, where.name, notes)


def share(
    units: int = 0, *, gpus: int = 1, kind: Kind = kinds.MEMORY, role: Role = Role.APP, position: int = 0
) -> Share:
    return Share(f"c{position}", position, role, kind, units, gpus, f"{names.VISIBLE_PREFIX}{position}")


def gpus(*totals: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(i, f"GPU-{i}", total) for i, total in enumerate(totals))


def ledger(*nodes: NodeFacts) -> Ledger:
    made = Ledger()
    for one in nodes:
        made.set_node(one)
    return made


def node_state(of: Ledger, name: str) -> NodeState:
    """A node that the ledger knows."""
    state = of.node(name)
    assert state is not None
    return state


def free(of: Ledger, name: str = "n") -> list[int]:
    """Free units by GPU of a node."""
    room = node_state(of, name).room
    assert room is not None
    return list(room.free)


PINS = (Pin.DIRECT.value, Pin.PLUGIN.value, Pin.ALIYUN.value)
