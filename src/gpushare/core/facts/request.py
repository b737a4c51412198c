"""What a pod asks for: parsed once, into a `Request` or a `Refusal` with its sentence.

Amounts come from here, that is from the spec, and from nowhere else. What users may write beside them (policy, unit,
split) counts until the pod is bound: after that its owner must not be able to change what it holds, so only the spec
and the annotations that gpushare alone may write mean something. The sentences below are what people read in `kubectl
describe pod`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpushare.core.facts import kinds, names, objects, policies, units
from gpushare.core.facts.model import Pin, PodFacts, Refusal, Request, Role, Rules, Share, Unit

NOT_DIVISIBLE = "{units} {unit} cannot be split evenly over {gpus} GPUs"
BOTH_LIMITS = "{resources} on one container"
UNKNOWN_POLICY = f"{names.POLICY} is not {{policies}}"
UNKNOWN_UNIT = f"{names.MEMORY_UNIT} is not MiB or GiB"

FINISHED = ("Succeeded", "Failed")
MOST_CONDITIONS, MOST_VALUES, MOST_TEXT = 32, 256, 16_384  # of what keeps a pod to some nodes
ANYWHERE = Rules(tolerations=(objects.Toleration(operator="Exists"),))
_FIELD = "metadata.annotations['"
_allocation = msgspec.json.Decoder(dict[str, dict[str, int]])


class _Wishes(NamedTuple):
    """What a user may say beside the amounts."""

    unit: Unit | None = None
    policy: str | None = None
    split: int = 1


def facts(pod: objects.Pod, default_unit: Unit | None) -> PodFacts:
    """All that counts of a pod. One that asks no GPU has `request` None."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    request = parse(pod, default_unit)
    if request is None:
        return PodFacts(meta.uid, meta.namespace, meta.name, None, spec.node_name or "")
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    spec_units, spec_exclusive = _amounts(containers)
    condition = next((c for c in status.conditions or () if c.type == "PodScheduled"), None)
    waits = condition is not None and condition.status == "False" and condition.reason == "Unschedulable"
    return PodFacts(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        request=request,
        node=spec.node_name or "",
        priority=spec.priority or 0,
        created=meta.creation_timestamp or "",
        finished=status.phase in FINISHED,
        terminating=meta.deletion_timestamp is not None,
        nominated=status.nominated_node_name or "",
        unschedulable=(condition.message or "Unschedulable") if condition is not None and waits else "",
        waits_since=(condition.last_transition_time or "") if condition is not None and waits else "",
        phase=status.phase or "Pending",
        failed_reason=(status.reason or "") if status.phase == "Failed" else "",
        slow_volumes=any(v.persistent_volume_claim or v.ephemeral for v in spec.volumes or ()),
        spec_units=spec_units,
        spec_exclusive=spec_exclusive,
        pinned=all(_visible(container) for container in containers if _asks(container)),
        annotations=_guarded(meta.annotations, bound=bool(spec.node_name)),
        rules=None if spec.node_name else _rules(spec),
    )


def bound(pod: PodFacts, node: str, annotations: dict[str, str]) -> PodFacts:
    """The pod as it stands once a binding with these annotations was made: as `facts` will read it."""
    kept = {key: value for key, value in pod.annotations if key != names.KEPT} | dict(_guarded(annotations, bound=True))
    request = Request(pod.request.shares, pod.request.pin) if isinstance(pod.request, Request) else pod.request
    return msgspec.structs.replace(pod, node=node, annotations=tuple(kept.items()), request=request, rules=None)


def sharing(pod: PodFacts, request: Request | Refusal | None, rules: Rules | None, strings: dict[str, str]) -> PodFacts:
    """The same pod, with what many pods have in common kept once: its request, its rules, and names of namespaces and
    nodes."""
    namespace = strings.setdefault(pod.namespace, pod.namespace)
    node = strings.setdefault(pod.node, pod.node)
    return msgspec.structs.replace(pod, request=request, rules=rules, namespace=namespace, node=node)


def parse(pod: objects.Pod, default_unit: Unit | None) -> Request | Refusal | None:
    """The request of a pod, or why it is none, or None if it asks no GPU at all."""
    apps, inits = pod.spec.containers or [], pod.spec.init_containers or []
    if not any(_asks(container) for container in (*inits, *apps)):
        return None
    wishes = _Wishes() if pod.spec.node_name else _wishes(pod.metadata, default_unit)
    if isinstance(wishes, Refusal):
        return wishes
    shares = []
    for container, position, role in _in_start_order(apps, inits):
        share = _share(container, position, role, wishes.split, wishes.unit)
        if isinstance(share, Refusal):
            return share
        if share is not None:
            shares.append(share)
    if pod.spec.node_name:
        shares = _as_given(shares, pod.metadata.annotations or {})
    return Request(tuple(shares), _pin(shares), wishes.unit, wishes.policy) if shares else None


def _wishes(metadata: objects.Metadata, default_unit: Unit | None) -> _Wishes | Refusal:
    annotations = metadata.annotations or {}
    unit = _unit(annotations, default_unit)
    if isinstance(unit, Refusal):
        return unit
    policy = annotations.get(names.POLICY)
    if policy is not None and policy not in policies.POLICIES:
        message = UNKNOWN_POLICY.format(policies=" or ".join(policies.POLICIES))
        return Refusal("UnknownPolicy", message, forever=True, detail=f"it says {kinds.quoted(policy)}.")
    split = _split(annotations, metadata.labels or {})
    return split if isinstance(split, Refusal) else _Wishes(unit, policy, split)


def _as_given(shares: list[Share], annotations: dict[str, str]) -> list[Share]:
    """The shares of a bound pod, each over as many GPUs as the binding gave it: one unless that says otherwise."""
    written = annotations.get(names.ALLOCATION, "{}")
    if "," not in written and not any("," in annotations.get(share.visible, "") for share in shares):
        return shares  # several GPUs need a comma: nearly no pod has them, and thousands are read
    try:
        allocation = _allocation.decode(written)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        allocation = {}
    given = []
    for share in shares:
        gpus = 1 if share.kind.exclusive else _gpus_given(share, annotations, allocation.get(str(share.position), {}))
        given.append(share if gpus == 1 else msgspec.structs.replace(share, gpus=gpus))
    return given


def _gpus_given(share: Share, annotations: dict[str, str], entry: dict[str, int]) -> int:
    """How many GPUs a container's memory is split over; 1 if what says so does not match its amount."""
    if share.visible in annotations:
        listed = annotations[share.visible].split(",")
        gpus, even = len(listed), len(set(listed)) == len(listed)
    else:  # an init container's entry is only what it holds beyond the others, and is never split
        gpus, even = (
            len(entry),
            share.role is not Role.INIT and set(entry.values()) == {share.units // max(len(entry), 1)},
        )
    return gpus if even and 1 <= gpus <= kinds.MOST_GPUS and share.units % gpus == 0 else 1


def _in_start_order(
    apps: Sequence[objects.Container], inits: Sequence[objects.Container]
) -> list[tuple[objects.Container, int, Role]]:
    """Init containers first, as kubelet starts them; positions, as in the allocation, count app containers first."""
    started = [
        (container, len(apps) + i, Role.SIDECAR if container.restart_policy == "Always" else Role.INIT)
        for i, container in enumerate(inits)
    ]
    return started + [(container, i, Role.APP) for i, container in enumerate(apps)]


def _limits(container: objects.Container) -> dict[str, objects.Quantity]:
    return (container.resources.limits if container.resources else None) or {}


def _asks(container: objects.Container) -> bool:
    return not kinds.BY_RESOURCE.keys().isdisjoint(_limits(container))


def _amounts(containers: Sequence[objects.Container]) -> tuple[int, bool]:
    """The units of memory that the spec has in all, and whether it has whole GPUs."""
    memory, exclusive = 0, False
    for container in containers:
        limits = _limits(container)
        for resource, kind in kinds.BY_RESOURCE.items():
            amount = units.number(limits, resource)
            if kind.exclusive:
                exclusive = exclusive or amount > 0
            else:
                memory += amount
    return memory, exclusive


def _share(
    container: objects.Container, position: int, role: Role, split: int, unit: Unit | None
) -> Share | Refusal | None:
    limits, asked = _limits(container), []
    for resource, kind in kinds.BY_RESOURCE.items():
        if resource in limits:
            amount = kind.parse(resource, container.name, limits[resource], unit)
            if isinstance(amount, Refusal):
                return amount
            if amount:
                asked.append((resource, kind, amount))
    if not asked:
        return None
    if len(asked) > 1:
        message = BOTH_LIMITS.format(resources=" and ".join([resource for resource, _, _ in asked]))
        return Refusal("BothLimits", message, forever=True, detail=f"container {container.name} has both.")
    _, kind, amount = asked[0]
    if kind.exclusive:
        return Share(container.name, position, role, kind, 0, amount, visible=_visible(container))
    if amount % split:
        message = NOT_DIVISIBLE.format(units=amount, unit=unit or names.MIB, gpus=split)
        detail = f"container {container.name}: ask {amount - amount % split} or {amount + split - amount % split}."
        return Refusal("NotDivisible", message, forever=True, detail=detail)
    return Share(container.name, position, role, kind, amount, split, visible=_visible(container))


def _split(annotations: dict[str, str], labels: dict[str, str]) -> int | Refusal:
    """Over how many GPUs each container's memory is split; 1 unless annotation or label says more."""
    written = annotations.get(names.GPU_COUNT, labels.get(names.GPU_COUNT))
    if written is None:
        return 1
    if written.isascii() and written.isdigit() and len(written) < 10 and 1 <= int(written) <= kinds.MOST_GPUS:
        return int(written)
    message = kinds.NOT_WHOLE.format(resource=names.GPU_COUNT)
    return Refusal("CountNotWhole", message, forever=True, detail=f"the pod's annotation says {kinds.quoted(written)}.")


def _unit(annotations: dict[str, str], default_unit: Unit | None) -> Unit | Refusal | None:
    written = annotations.get(names.MEMORY_UNIT)
    if written is None:
        return default_unit
    if written == "MiB":
        return "MiB"
    if written == "GiB":
        return "GiB"
    return Refusal("UnknownUnit", UNKNOWN_UNIT, forever=True, detail=f"it says {kinds.quoted(written)}.")


def _pin(shares: Sequence[Share]) -> Pin | None:
    """DIRECT if each container's env comes from an annotation of its own, PLUGIN if none does."""
    keys = [share.visible for share in shares if share.visible]
    if not keys:
        return Pin.PLUGIN
    # One annotation for two containers cannot say two things: such a pod was not made by the admission policy.
    return Pin.DIRECT if len(keys) == len(shares) == len(set(keys)) else None


def _visible(container: objects.Container) -> str:
    """The annotation of ours that this container's env refers to. The last entry of a name is the one that counts."""
    for entry in reversed(container.env or ()):
        if entry.name == names.VISIBLE_DEVICES:
            path = entry.value_from.field_ref.field_path if entry.value_from and entry.value_from.field_ref else ""
            key = path.removeprefix(_FIELD).removesuffix("']")
            # Only our own group: an env that points elsewhere must not make us write a foreign annotation.
            return key if key.startswith(names.VISIBLE_PREFIX) and path == f"{_FIELD}{key}']" else ""
    return ""


def _rules(spec: objects.PodSpec) -> Rules | None:
    """What keeps a pod to some nodes. Every node is compared with it, so what is too long for that is not looked at:
    such a pod counts as one that may go anywhere."""
    terms = spec.required_terms
    if not spec.node_selector and terms is None and not spec.tolerations:
        return None
    rules = Rules(tuple(sorted((spec.node_selector or {}).items())), terms, spec.tolerations or ())
    return rules if _is_short(rules) else ANYWHERE


def _is_short(rules: Rules) -> bool:
    terms = rules.terms or ()
    expressions = [e for t in terms for e in (*(t.match_expressions or ()), *(t.match_fields or ()))]
    conditions = len(expressions) + len(terms) + len(rules.selector) + len(rules.tolerations)
    values = [value for expression in expressions for value in expression.values or ()]
    if conditions > MOST_CONDITIONS or len(values) > MOST_VALUES:
        return False
    words = [word for pair in rules.selector for word in pair]
    words += [word for toleration in rules.tolerations for word in (toleration.key, toleration.value)]
    words += [expression.key for expression in expressions]
    return sum(map(len, (*words, *values))) <= MOST_TEXT


_CHOOSING = (names.ALLOCATION, names.ALIYUN_IDX, names.ALIYUN_DEV, names.ALIYUN_ASSIGNED, names.EXTENDER)


def _guarded(annotations: dict[str, str] | None, *, bound: bool) -> tuple[tuple[str, str], ...]:
    """What was kept for a pod while it waited says nothing about one that is bound."""
    return tuple(
        (key, value)
        for key, value in (annotations or {}).items()
        if key in _CHOOSING or key.startswith(names.VISIBLE_PREFIX) or (key == names.KEPT and not bound)
    )
