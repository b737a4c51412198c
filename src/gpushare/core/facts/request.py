"""What a pod asks for: a `Request`, or a `Refusal` with its sentence.

Amounts come from the spec, and from nowhere else. What users may write beside them (`options`) counts until the pod is
bound. After that its owner must not be able to change what it holds, so only the spec and the annotations that gpushare
alone may write are read. People read the sentences below in `kubectl describe pod`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpushare.core.facts import kinds, names, node_rules, objects, options, units, visible
from gpushare.core.facts.model import Kind, PodFacts, Refusal, Request, Role, Rules, Share, Unit
from gpushare.core.facts.options import Options
from gpushare.core.facts.packing.asked import cpu_and_memory

NOT_DIVISIBLE = "{units} {unit} cannot be split evenly over {gpus} GPUs"
BOTH_LIMITS = "{resources} on one container"

Asked = Sequence[tuple[str, Kind, objects.Quantity]]  # resource, its kind, and the limit that is written

_allocation = msgspec.json.Decoder(dict[str, dict[str, int]])


class _Asking(NamedTuple):
    """A container that asks for GPUs. Found once for a pod: each event and each call of a scheduler brings one."""

    container: objects.Container
    position: int
    role: Role
    asked: Asked
    visible: str  # the annotation of ours that its env takes its GPUs from; empty: none


def facts(pod: objects.Pod, default_unit: Unit | None) -> PodFacts:
    """What gpushare knows about a pod. `request` is None if it asks for no GPU."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    asking = _asking(spec)
    request = _parse(pod, asking, default_unit)
    cpu, memory = cpu_and_memory(spec)
    if request is None:
        foreign = _any_asks_nvidia(spec)
        rules = None if spec.node_name else node_rules.of_annotations(pod)
        return PodFacts(
            meta.uid, meta.namespace, meta.name, None, spec.node_name or "", asks_nvidia=foreign, rules=rules,
            cpu=cpu, memory=memory,
        )  # fmt: skip
    spec_units, spec_unknown = _amounts(asking)
    condition = next((c for c in status.conditions if c.type == "PodScheduled"), None) if status.conditions else None
    waits = condition is not None and condition.status == "False" and condition.reason == "Unschedulable"
    return PodFacts(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        request=request,
        node=spec.node_name or "",
        priority=spec.priority or 0,
        created=meta.creation_timestamp or "",
        finished=status.phase in objects.FINISHED,
        terminating=meta.deletion_timestamp is not None,
        nominated=status.nominated_node_name or "",
        unschedulable=(condition.message or "Unschedulable") if condition is not None and waits else "",
        waits_since=(condition.last_transition_time or "") if condition is not None and waits else "",
        phase=status.phase or "Pending",
        failed_reason=(status.reason or "") if status.phase == "Failed" else "",
        slow_volumes=any(v.persistent_volume_claim or v.ephemeral for v in spec.volumes or ()),
        spec_units=spec_units,
        spec_unknown=spec_unknown,
        controlled=bool(meta.owner_references and meta.controller),
        pinned=all(one.visible for one in asking),
        annotations=_guarded(meta.annotations, bound=bool(spec.node_name)),
        rules=None if spec.node_name else node_rules.read(pod),
        cpu=cpu,
        memory=memory,
    )


def bound(pod: PodFacts, node: str, annotations: dict[str, str]) -> PodFacts:
    """The pod after a binding with these annotations: as `facts` will read it from the API server."""
    written = _guarded(annotations, bound=True)
    if pod.annotations:
        before = {key: value for key, value in pod.annotations if key != names.KEPT}
        written = tuple((before | dict(written)).items())
    request = pod.request
    if isinstance(request, Request) and request.has_options:
        shares = tuple([msgspec.structs.replace(s, slot_bytes=0) if s.slot_bytes else s for s in request.shares])
        request = Request(shares, request.pin, by_mps=request.by_mps)
    return msgspec.structs.replace(pod, node=node, annotations=written, request=request, rules=None, needs=None)


def sharing(pod: PodFacts, request: Request | Refusal | None, rules: Rules | None, strings: dict[str, str]) -> PodFacts:
    """The same pod, but it shares equal objects with other pods, to save memory: its request, its rules, the names of
    its namespace and node."""
    namespace = strings.setdefault(pod.namespace, pod.namespace)
    node = strings.setdefault(pod.node, pod.node)
    return msgspec.structs.replace(pod, request=request, rules=rules, namespace=namespace, node=node)


def parse(pod: objects.Pod, default_unit: Unit | None) -> Request | Refusal | None:
    """The request of a pod; a refusal if the request is invalid; None if the pod asks for no GPU."""
    return _parse(pod, _asking(pod.spec), default_unit)


def _parse(pod: objects.Pod, asking: Sequence[_Asking], default_unit: Unit | None) -> Request | Refusal | None:
    if not asking:
        return None
    chosen = Options() if pod.spec.node_name else options.read(pod.metadata, default_unit)
    if isinstance(chosen, Refusal):
        return chosen
    shares, by_mps = [], True
    for one in asking:
        share = _share(one, chosen)
        if isinstance(share, Refusal):
            return share
        if share is not None:
            shares.append(share)
            by_mps = by_mps and (share.kind.slots > 0 or _mounts_pipes(one.container, pod.spec.volumes))
    if pod.spec.node_name:
        shares = _as_bound(shares, pod.metadata.annotations or {})
    # No node serves both: a container that asks NVIDIA's plugin, and one that asks us.
    pin = None if _any_asks_nvidia(pod.spec) else visible.pin(shares)
    return Request(tuple(shares), pin, chosen.unit, chosen.policy, by_mps) if shares else None


def _as_bound(shares: list[Share], annotations: dict[str, str]) -> list[Share]:
    """The shares of a bound pod, each over the number of GPUs that its annotations name; one if they name none. The
    memory of an MPS share is read with the GPUs of the node: `annotations/pod_gpus.py`."""
    written = annotations.get(names.ALLOCATION, "{}")
    if "," not in written and not any("," in annotations.get(share.visible, "") for share in shares):
        return shares  # several GPUs need a comma; few pods have them, and thousands of pods are read
    try:
        allocation = _allocation.decode(written)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        allocation = {}
    result = []
    for share in shares:
        gpus = 1 if share.kind.counts_gpus else _gpus_bound(share, annotations, allocation.get(str(share.position), {}))
        result.append(share if gpus == 1 else msgspec.structs.replace(share, gpus=gpus))
    return result


def _gpus_bound(share: Share, annotations: dict[str, str], entry: dict[str, int]) -> int:
    """How many GPUs a container's memory is split over; 1 if the annotations do not match its amount."""
    if share.visible in annotations:
        listed = annotations[share.visible].split(",")
        gpus, even = len(listed), len(set(listed)) == len(listed)
    else:  # the entry of an init container is only what it holds beyond the others, and is never split
        gpus = len(entry)
        even = share.role is not Role.INIT and set(entry.values()) == {share.units // max(gpus, 1)}
    return gpus if even and 1 <= gpus <= kinds.MOST_GPUS and share.units % gpus == 0 else 1


def _asking(spec: objects.PodSpec) -> list[_Asking]:
    """Init containers first, as kubelet starts them. Positions count app containers first, as the allocation does."""
    apps, inits, found = spec.containers or (), spec.init_containers or (), []
    for i, container in enumerate((*inits, *apps), -len(inits)):
        asked = _asked(container)
        if asked:
            role = Role.APP if i >= 0 else Role.SIDECAR if container.restart_policy == "Always" else Role.INIT
            position = i if i >= 0 else len(apps) + len(inits) + i
            found.append(_Asking(container, position, role, asked, visible.annotation(container)))
    return found


def _mounts_pipes(container: objects.Container, volumes: Sequence[objects.Volume] | None) -> bool:
    """Whether it is a client of the node's MPS daemon although it asks for no share of it. With another volume at that
    place it would not find the daemon, and keep its clients off the GPU."""
    at_place = {mount.name for mount in container.volume_mounts or () if _is_pipe_folder(mount.mount_path)}
    return any(
        volume.name in at_place and volume.host_path is not None and _is_pipe_folder(volume.host_path.path)
        for volume in (volumes or () if at_place else ())
    )


def _is_pipe_folder(path: str) -> bool:
    return path.rstrip("/") == names.MPS_PIPE_FOLDER


def _limits(container: objects.Container) -> dict[str, objects.Quantity]:
    return (container.resources.limits if container.resources else None) or {}


def _asked(container: objects.Container) -> Asked:
    """The resources of ours that a container has a limit for. Some count only with our env: `_any_asks_nvidia`."""
    limits = _limits(container)
    asked = [(name, kind, limits[name]) for name, kind in kinds.BY_RESOURCE.items() if name in limits] if limits else []
    if kinds.ONLY_PINNED.isdisjoint(limits) or visible.annotation(container):
        return asked
    return [entry for entry in asked if not entry[1].only_pinned]


def _any_asks_nvidia(spec: objects.PodSpec) -> bool:
    """Whether a container asks for GPUs by a name that we sell too, but not from us: it has not our env."""
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    named = [c for c in containers if c.resources and not kinds.ONLY_PINNED.isdisjoint(c.resources.limits or ())]
    return bool(named) and any(
        units.number(_limits(container), name) and not visible.annotation(container)
        for container in named
        for name in kinds.ONLY_PINNED
    )


def _amounts(asking: Sequence[_Asking]) -> tuple[int, bool]:
    """The units of memory in the spec, and whether it has kinds whose memory it does not tell. Invalid requests count
    too."""
    memory, unknown = 0, False
    for _, kind, written in [entry for one in asking for entry in one.asked]:
        amount = units.parse(written)
        if amount is not None and kind.counts_gpus:
            unknown = unknown or amount.value > 0
        elif amount is not None:
            memory += amount.value
    return memory, unknown


def _share(asking: _Asking, chosen: Options) -> Share | Refusal | None:
    container, position, role, asked, key = asking
    asks, kind, amount, unit = "", None, 0, chosen.unit
    for resource, candidate, written in asked:
        parsed = candidate.parse(resource, container.name, written, unit)
        if isinstance(parsed, Refusal):
            return parsed
        if parsed and kind is not None:
            message = BOTH_LIMITS.format(resources=f"{asks} and {resource}")
            return Refusal("BothLimits", message, forever=True, detail=f"container {container.name} has both.")
        if parsed:
            asks, kind, amount = resource, candidate, parsed
    if kind is None:
        return None
    split = chosen.split
    if kind.counts_gpus:
        slot_bytes = chosen.slot_bytes if kind.slots else 0
        if isinstance(slot_bytes, Refusal):
            return slot_bytes
        limited = bool(kind.slots) and visible.is_limited(container)
        return Share(container.name, position, role, kind, 0, amount, key, slot_bytes, limited)
    if amount % split:
        message = NOT_DIVISIBLE.format(units=amount, unit=unit or names.MIB, gpus=split)
        detail = f"container {container.name}: ask {amount - amount % split} or {amount + split - amount % split}."
        return Refusal("NotDivisible", message, forever=True, detail=detail)
    return Share(container.name, position, role, kind, amount, split, key)


_PLACES = (names.ALLOCATION, names.ALIYUN_IDX, names.ALIYUN_DEV, names.ALIYUN_ASSIGNED, names.EXTENDER)


def _guarded(annotations: dict[str, str] | None, *, bound: bool) -> tuple[tuple[str, str], ...]:
    """The annotations that only gpushare may write. GPUs kept for a waiting pod mean nothing once it is bound."""
    return tuple(
        [
            (key, value)
            for key, value in (annotations or {}).items()
            if key in _PLACES or key.startswith(names.VISIBLE_PREFIX) or (key == names.KEPT and not bound)
        ]
    )
