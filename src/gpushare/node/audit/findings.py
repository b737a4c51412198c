"""What must not be on a node, and would go unnoticed: found by comparing what pods hold, see and say.

Pure. `auditor` asks whenever something changed, makes Warning events of the answers and counts them. Nothing is done
about what is found: whoever reads the event decides.
"""

from collections.abc import Iterable, Mapping

from gpushare.core.annotations import pod_gpus
from gpushare.core.explain import event_texts, inspected
from gpushare.core.facts import names, objects, request, units
from gpushare.core.facts.model import Data, NodeFacts, PodFacts, Request, Share, Unit
from gpushare.node.pods import NO_GPU, Container, ContainerStatus, NodePod

OVERCOMMITTED = "GPUOvercommitted"
WRONG_GPU = "WrongGPU"
NVIDIA_TOO = "NvidiaPluginToo"
UNIT_KEPT = "UnitKept"
OTHER_UNIT = "OtherUnit"
BOUND_BY_HAND = event_texts.BOUND_BY_HAND
UNASKED_GPU = "UnaskedGPU"
CODES = (OVERCOMMITTED, WRONG_GPU, NVIDIA_TOO, UNIT_KEPT, OTHER_UNIT, BOUND_BY_HAND, UNASKED_GPU)

HOLDS_TOO_MUCH = "GPU {gpu}: its pods hold {held} of {total} {unit}: {pods}. Delete one of them."
OWN_VALUE = (
    'Container {container} sees {sees}, its share is on {share}: its own NVIDIA_VISIBLE_DEVICES "{value}" wins over '
    "gpushare's. Remove that variable from the pod."
)
MOVED = (
    "Container {container} uses {started}, its annotation {key} now says {now}: what it uses is given to others. "
    "Restart the pod; who wrote that?"
)
SOLD_TWICE = (
    "NVIDIA's device plugin also hands out this node's GPUs (nvidia.com/gpu: {count}); nothing new is sent here. "
    "Keep it off: label nvidia.com/gpu.deploy.device-plugin=false with the GPU Operator."
)
KEPT = (
    "Pods here were given memory in {unit}, so this node counts {unit} until they are gone, and {asked} from then on. "
    "Drain it to change that now: docs/nodes.md."
)
GIVEN_OTHERWISE = (
    "It was given GPU memory in {given} on a node that now counts {unit}: {amount} {given} are charged as {charged} "
    "{unit}. Make it anew with an amount in {unit}."
)
NOT_ASKED = (
    "Container {container} asks for no GPU, but its NVIDIA_VISIBLE_DEVICES is {value}: nobody counts what it uses. "
    "Ask for GPU memory, or remove the variable."
)
ELSEWHERE = "taken from elsewhere"  # a ConfigMap, a Secret: what it says there is not known here
TOOLING = ("kube-system", "kube-public", "kube-node-lease", "gpu-operator", "nvidia-gpu-operator")
"""Namespaces whose pods see all GPUs on purpose, ours among them; deploy/unasked.yaml has the same list."""
MOST_NAMED = 3  # pods, or GPUs, in one sentence
LONGEST_VALUE = 24  # characters of a tenant's own
ALL_GPUS = "all"


class Finding(Data, frozen=True):
    """About a pod, or about the node if `pod` is None."""

    code: str
    message: str
    pod: PodFacts | None = None


Starts = Mapping[str, tuple[str, str]]
"""By container: which start of it is meant, and what its annotation said when that was first seen."""


def findings(
    facts: NodeFacts, pods: Iterable[NodePod], node: objects.Node, begun: Mapping[str, Starts], unit: Unit
) -> list[Finding]:
    """All that is wrong now. `begun`: the starts of each pod's containers, by uid. `unit`: what the node was asked to
    count in."""
    pods = list(pods)
    bound = [seen.facts for seen in pods if not seen.facts.finished]
    live = [seen for seen in pods if isinstance(seen.facts.request, Request) and not seen.facts.finished]
    wrong = [finding for seen in live for finding in _wrong_gpus(facts, seen, begun.get(seen.facts.uid, {}))]
    counted = [*_unit_kept(facts, unit), *_other_units(facts, bound), *_by_hand(facts, bound)]
    return [*_nvidia_too(node), *_overcommitted(facts, [seen.facts for seen in live]), *wrong, *counted]


def _unit_kept(facts: NodeFacts, asked: Unit) -> list[Finding]:
    """The same sentence as long as it lasts, whoever comes and goes: it would else be an event for each pod."""
    return [] if facts.unit == asked else [Finding(UNIT_KEPT, KEPT.format(unit=facts.unit, asked=asked))]


def _other_units(facts: NodeFacts, pods: list[PodFacts]) -> list[Finding]:
    """Pods whose numbers mean something else than the node's."""
    found = []
    for pod in pods:
        given = pod_gpus.counted_in(pod, facts)
        if given != facts.unit and pod.spec_units:
            charged = units.converted(pod.spec_units, given, facts.unit)
            message = GIVEN_OTHERWISE.format(given=given, unit=facts.unit, amount=pod.spec_units, charged=charged)
            found.append(Finding(OTHER_UNIT, message, pod))
    return found


def _by_hand(facts: NodeFacts, pods: list[PodFacts]) -> list[Finding]:
    """Pods that no extender of ours, and no plugin, has said anything about. The node is told: their owner did it."""
    found = []
    for pod in pods:
        if not pod.annotations:
            what = event_texts.SEES_NONE if pod_gpus.sees_nothing(pod, facts) else event_texts.COUNTS_ON_ALL
            found.append(Finding(BOUND_BY_HAND, event_texts.bound_by_hand(pod, what)))
    return found


def unasked(node: objects.Node, pods: Iterable[NodePod]) -> list[Finding]:
    """Pods with a container that asks for no GPU and names GPUs. Of each pod the first such container is named."""
    counted = _counted(node)
    named = (
        (seen, _unasked(seen, counted))
        for seen in pods
        if seen.facts.namespace not in TOOLING and seen.pod.status.phase not in request.FINISHED
    )
    return [Finding(UNASKED_GPU, event_texts.cut(message), seen.facts) for seen, message in named if message]


def _counted(node: objects.Node) -> tuple[str, ...]:
    """The resources of which somebody counts who has how much here. Of NVIDIA's only what the node has: kubelet does
    not look for others, so who names his node could ask for any."""
    there = node.status.allocatable or {}
    nvidias = [name for name in there if name in names.NVIDIA_GPUS or name.startswith(names.NVIDIA_SLICES)]
    return (names.GPU_MEM, names.GPU_COUNT, *(name for name in nvidias if units.number(there, name)))


def _unasked(seen: NodePod, counted: tuple[str, ...]) -> str:
    statuses = seen.pod.statuses()
    for container in seen.pod.containers():
        status, limits = statuses.get(container.name), container.resources.limits if container.resources else None
        ended = status is not None and status.state is not None and status.state.terminated is not None
        if not ended and not any(units.number(limits, resource) for resource in counted):
            value = _named_value(container, seen.pod.metadata.annotations or {})
            if value:
                return NOT_ASKED.format(container=event_texts.short_name(container.name), value=value)
    return ""


def _named_value(container: Container, annotations: Mapping[str, str]) -> str:
    """In words; empty if a container with that value sees no GPU."""
    entry = container.visible_devices()
    if entry is None:
        return ""
    value = entry.value or ""
    if entry.value_from is not None:
        path = entry.value_from.field_ref.field_path if entry.value_from.field_ref is not None else ""
        key = path.removeprefix("metadata.annotations['").removesuffix("']")
        if path != f"metadata.annotations['{key}']":
            return ELSEWHERE
        value = annotations.get(key, "")
    words = {word.strip() for word in value.split(",")} - {""}
    return "" if "void" in words or words <= set(NO_GPU) else f'"{_short(value)}"'


def _nvidia_too(node: objects.Node) -> list[Finding]:
    """NVIDIA's own plugin sells the GPUs of which we sell the memory."""
    count = units.number(node.status.allocatable, names.NVIDIA_GPU)
    if not count:
        return []
    return [Finding(NVIDIA_TOO, SOLD_TWICE.format(count=count))]


def starts(seen: NodePod, before: Starts) -> Starts:
    """What each container that runs was given when it started: its env is resolved then, and never again."""
    known, statuses = {}, seen.pod.statuses()
    for share in _shares(seen.facts):
        status, last = statuses.get(share.container), before.get(share.container)
        if share.visible and status is not None and status.is_running:
            now = (_start(status), seen.facts.annotation(share.visible) or "")
            known[share.container] = last if last is not None and last[0] == now[0] else now
    return known


def _overcommitted(facts: NodeFacts, pods: list[PodFacts]) -> list[Finding]:
    holders: dict[int, list[tuple[int, PodFacts]]] = {}
    for pod in pods:
        for gpu, amount in pod_gpus.read(pod, facts) or ():
            holders.setdefault(gpu, []).append((amount, pod))
    found = []
    for gpu, on in sorted(holders.items()):
        held, total = sum(amount for amount, _ in on), facts.gpus[gpu].total
        if held > total:
            message = HOLDS_TOO_MUCH.format(
                gpu=facts.gpus[gpu].index, held=held, total=total, unit=facts.unit, pods=_named(on)
            )
            found.append(Finding(OVERCOMMITTED, event_texts.cut(message)))
    return found


def _named(on: list[tuple[int, PodFacts]]) -> str:
    """The largest first: one of those is the one to delete."""
    largest = sorted(on, key=lambda pair: (-pair[0], pair[1].namespace, pair[1].name))
    said = [f"{pod.namespace}/{event_texts.short_name(pod.name)} {amount}" for amount, pod in largest[:MOST_NAMED]]
    return ", ".join([*said, f"{len(on) - MOST_NAMED} more"] if len(on) > MOST_NAMED else said)


def _wrong_gpus(facts: NodeFacts, seen: NodePod, starts: Starts) -> Iterable[Finding]:
    containers = {container.name: container for container in seen.pod.containers()}
    for share in _shares(seen.facts):
        container = containers[share.container]
        own = _own_value(container)
        message = _sees_others(facts, seen.facts, share, own) if own is not None else _moved(facts, seen, share, starts)
        if message:
            yield Finding(WRONG_GPU, event_texts.cut(message), seen.facts)


def _own_value(container: Container) -> str | None:
    """What the pod itself writes into the variable; None if it leaves that to us. The last entry counts."""
    entry = container.visible_devices()
    return None if entry is None or entry.value_from is not None else entry.value or ""


def _sees_others(facts: NodeFacts, pod: PodFacts, share: Share, own: str) -> str:
    """A tenant's own value that names other GPUs than its share is on."""
    mine = inspected.gpus_of(pod, facts).get(share.container, []) if pod_gpus.read(pod, facts) is not None else []
    sees = _seen(facts, own)
    if set(sees) <= set(mine):
        return ""
    container = event_texts.short_name(share.container)
    return OWN_VALUE.format(container=container, value=_short(own), sees=_gpus(sees), share=_gpus(mine))


def _moved(facts: NodeFacts, seen: NodePod, share: Share, starts: Starts) -> str:
    """An annotation that says otherwise than when its container started."""
    known = starts.get(share.container)
    now = seen.facts.annotation(share.visible) or ""
    if not share.visible or known is None or set(known[1].split(",")) == set(now.split(",")):
        return ""
    container, started, says = event_texts.short_name(share.container), _seen(facts, known[1]), _seen(facts, now)
    return MOVED.format(container=container, started=_gpus(started), now=_gpus(says), key=share.visible)


def _seen(facts: NodeFacts, value: str) -> list[int]:
    """The GPUs, by index, that a container with that value sees: it may name them by uuid or by index."""
    if value in NO_GPU:
        return []
    if value == ALL_GPUS:
        return [gpu.index for gpu in facts.gpus]
    words = {word.strip() for word in value.split(",")}
    return [gpu.index for gpu in facts.gpus if words & {gpu.uuid, str(gpu.index)}]


def _short(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"


def _gpus(indices: list[int]) -> str:
    if len(indices) > MOST_NAMED:
        return f"{len(indices)} GPUs"
    return " and ".join(f"GPU {index}" for index in sorted(indices)) or "no GPU"


def _shares(pod: PodFacts) -> tuple[Share, ...]:
    return pod.request.shares if isinstance(pod.request, Request) else ()


def _start(status: ContainerStatus) -> str:
    """Tells one start of a container from the next."""
    running = status.state.running if status.state is not None else None
    return f"{status.container_id or ''} {running.started_at or '' if running is not None else ''}"
