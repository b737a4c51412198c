"""Which GPUs containers see: others than their share is on, or some although they ask for none.

Pure. The container runtime reads `NVIDIA_VISIBLE_DEVICES` when it starts a container. A pod may set that variable
itself, and an annotation that the variable refers to may change later: both are found by comparing.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gpushare.core.admission.unasked import SYSTEM
from gpushare.core.annotations import pod_gpus
from gpushare.core.explain import event_texts, inspected
from gpushare.core.explain.event_texts import UNASKED_GPU, WRONG_GPU
from gpushare.core.facts import names, objects, units
from gpushare.core.facts.model import NodeFacts, PodFacts, Request, Share
from gpushare.node.audit.finding import Finding
from gpushare.node.pods import NO_GPU, Container, ContainerStatus, NodePod

OWN_VALUE: Final = (
    'Container {container} sees {sees}, its share is on {share}: its own NVIDIA_VISIBLE_DEVICES "{value}" wins over '
    "gpushare's. Remove that variable from the pod."
)
MOVED: Final = (
    "Container {container} uses {started}, but annotation {key} now says {now}: what it uses is given to others. "
    "Restart the pod, and find out who wrote that."
)
NOT_ASKED: Final = (
    "Container {container} asks for no GPU, but its NVIDIA_VISIBLE_DEVICES is {value}: what it uses is not counted. "
    "Ask for GPU memory, or remove the variable."
)
ELSEWHERE: Final = "taken from elsewhere"  # a ConfigMap, a Secret: its value is not known here
MOST_NAMED: Final = 3  # GPUs in one sentence
LONGEST_VALUE: Final = 24  # characters of a pod's own value
ALL_GPUS: Final = "all"

Starts = Mapping[str, tuple[str, str]]
"""By container: which start of it is meant, and what its annotation said when that start was first seen."""


def wrong_gpus(facts: NodeFacts, node_pod: NodePod, starts: Starts) -> Iterable[Finding]:
    """Containers of one pod that see other GPUs than their share is on."""
    containers = {container.name: container for container in node_pod.pod.containers()}
    for share in _shares(node_pod.facts):
        container = containers[share.container]
        own = _own_value(container)
        message = (
            _sees_others(facts, node_pod.facts, share, own)
            if own is not None
            else _moved(facts, node_pod, share, starts)
        )
        if message:
            yield Finding(WRONG_GPU, event_texts.cut(message), node_pod.facts)


def starts(node_pod: NodePod, before: Starts) -> Starts:
    """What the annotation of each running container said when it started: its env is resolved then, never again."""
    known, statuses = {}, node_pod.pod.statuses()
    for share in _shares(node_pod.facts):
        status, last = statuses.get(share.container), before.get(share.container)
        if share.visible and status is not None and status.is_running:
            now = (_start(status), node_pod.facts.annotation(share.visible) or "")
            known[share.container] = last if last is not None and last[0] == now[0] else now
    return known


def unasked(node: objects.Node, pods: Iterable[NodePod]) -> list[Finding]:
    """Pods with a container that asks for no GPU and names GPUs. Only the first such container of a pod is reported."""
    counted = _counted(node)
    named = (
        (node_pod, _unasked(node_pod, counted))
        for node_pod in pods
        if node_pod.facts.namespace not in SYSTEM and node_pod.pod.status.phase not in objects.FINISHED
    )
    return [Finding(UNASKED_GPU, event_texts.cut(message), node_pod.facts) for node_pod, message in named if message]


def _counted(node: objects.Node) -> tuple[str, ...]:
    """The resources that are counted here. NVIDIA's only if the node has them: kubelet does not check the others, so a
    pod that names its node could ask for any."""
    there = node.status.allocatable or {}
    nvidias = [name for name in there if name in names.NVIDIA_GPUS or name.startswith(names.NVIDIA_SLICES)]
    return (*names.PINNED, *(name for name in nvidias if units.number(there, name)))


def _unasked(node_pod: NodePod, counted: tuple[str, ...]) -> str:
    statuses = node_pod.pod.statuses()
    for container in node_pod.pod.containers():
        status, limits = statuses.get(container.name), container.resources.limits if container.resources else None
        ended = status is not None and status.state is not None and status.state.terminated is not None
        if not ended and not any(units.number(limits, resource) for resource in counted):
            value = _named_value(container, node_pod.pod.metadata.annotations or {})
            if value:
                return NOT_ASKED.format(container=event_texts.short_name(container.name), value=value)
    return ""


def _named_value(container: Container, annotations: Mapping[str, str]) -> str:
    """The value for the message; empty if a container with that value sees no GPU."""
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
    return "" if "void" in words or words <= set(NO_GPU) else f'"{units.short(value, LONGEST_VALUE)}"'


def _own_value(container: Container) -> str | None:
    """The value that the pod itself gives the variable; None if it leaves that to us. The last entry counts."""
    entry = container.visible_devices()
    return None if entry is None or entry.value_from is not None else entry.value or ""


def _sees_others(facts: NodeFacts, pod: PodFacts, share: Share, own: str) -> str:
    """The message if a pod's own value names other GPUs than the share is on; else empty."""
    mine = inspected.gpus_of(pod, facts).get(share.container, []) if pod_gpus.read(pod, facts) is not None else []
    sees = _visible(facts, own)
    if set(sees) <= set(mine):
        return ""
    container = event_texts.short_name(share.container)
    value = units.short(own, LONGEST_VALUE)
    return OWN_VALUE.format(container=container, value=value, sees=_gpus(sees), share=_gpus(mine))


def _moved(facts: NodeFacts, node_pod: NodePod, share: Share, starts: Starts) -> str:
    """The message if the annotation has changed since the container started; else empty."""
    known = starts.get(share.container)
    now = node_pod.facts.annotation(share.visible) or ""
    if not share.visible or known is None or set(known[1].split(",")) == set(now.split(",")):
        return ""
    container, started, says = event_texts.short_name(share.container), _visible(facts, known[1]), _visible(facts, now)
    return MOVED.format(container=container, started=_gpus(started), now=_gpus(says), key=share.visible)


def _visible(facts: NodeFacts, value: str) -> list[int]:
    """The GPUs, by index, that a container with that value sees: it may name them by uuid or by index."""
    if value in NO_GPU:
        return []
    if value == ALL_GPUS:
        return [gpu.index for gpu in facts.gpus]
    words = {word.strip() for word in value.split(",")}
    return [gpu.index for gpu in facts.gpus if words & {gpu.uuid, str(gpu.index)}]


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
