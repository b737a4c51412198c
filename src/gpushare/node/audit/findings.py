"""Problems found by the audit: what pods hold on the node's GPUs, in which unit, and who else gives these GPUs out.

Pure. Compares what the node publishes with its pods. What containers see is compared in `visible_gpus`. Nothing is
changed: a person reads the event and decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gpushare.core.annotations import pod_gpus
from gpushare.core.explain import event_texts
from gpushare.core.explain.event_texts import (
    BOUND_BY_HAND,
    NVIDIA_TOO,
    OTHER_UNIT,
    OVERCOMMITTED,
    TOO_SMALL,
    UNIT_KEPT,
)
from gpushare.core.facts import names, objects, units
from gpushare.core.facts.model import NodeFacts, PodFacts, Request, Unit
from gpushare.node.audit import visible_gpus
from gpushare.node.audit.finding import Finding
from gpushare.node.audit.visible_gpus import Starts
from gpushare.node.pods import NodePod

HOLDS_TOO_MUCH: Final = "GPU {gpu}: its pods hold {held} of {total} {unit}: {pods}. Delete one of them."
MPS_SLOTS: Final = "MPS slots"  # what they hold too much of, if not a unit of memory
SOLD_TWICE: Final = (
    "NVIDIA's device plugin also gives out this node's GPUs (nvidia.com/gpu: {count}); nothing new is sent here. "
    "Keep it off: label nvidia.com/gpu.deploy.device-plugin=false with the GPU Operator."
)
KEPT: Final = (
    "Pods here were given memory in {unit}, so this node counts {unit} until they are gone, and {configured} from then "
    "on. Drain it to change that now: docs/nodes.md."
)
GIVEN_OTHERWISE: Final = (
    "It was given GPU memory in {given} on a node that now counts {unit}: {amount} {given} are charged as {charged} "
    "{unit}. Create it again with an amount in {unit}."
)
SMALLER_THAN_UNIT: Final = (
    "GPU {gpu}{model} has less than 1 {unit} to give out, so no pod can use it. {way} (docs/nodes.md)."
)
SMALLER_UNIT: Final = "Count in MiB: --memory-unit=MiB"
SMALLER_RESERVE: Final = "Reserve less: --reserve"
MOST_NAMED: Final = 3  # pods in one sentence

Holders = dict[int, list[tuple[int, PodFacts]]]
"""By GPU, what each pod holds there."""


def findings(
    facts: NodeFacts, pods: Iterable[NodePod], node: objects.Node, begun: Mapping[str, Starts], unit: Unit
) -> list[Finding]:
    """All problems there are now. `begun`: the starts of each pod's containers, by uid. `unit`: what the node is
    configured to count in."""
    pods = list(pods)
    bound = [node_pod.facts for node_pod in pods if not node_pod.facts.finished]
    live = [
        node_pod for node_pod in pods if isinstance(node_pod.facts.request, Request) and not node_pod.facts.finished
    ]
    wrong = [
        finding
        for node_pod in live
        for finding in visible_gpus.wrong_gpus(facts, node_pod, begun.get(node_pod.facts.uid, {}))
    ]
    counted = [*_unit_kept(facts, unit), *_other_units(facts, bound), *_by_hand(facts, bound)]
    return [
        *_too_small(facts),
        *_nvidia_too(facts, node),
        *_overcommitted(facts, [node_pod.facts for node_pod in live]),
        *wrong,
        *counted,
    ]


def _unit_kept(facts: NodeFacts, configured: Unit) -> list[Finding]:
    """One sentence as long as it lasts, without names of pods: else there would be an event for each pod."""
    return [] if facts.unit == configured else [Finding(UNIT_KEPT, KEPT.format(unit=facts.unit, configured=configured))]


def _other_units(facts: NodeFacts, pods: list[PodFacts]) -> list[Finding]:
    """Pods that were given memory in another unit than the node counts in now."""
    problems = []
    for pod in pods:
        given = pod_gpus.counted_in(pod, facts)
        if given != facts.unit and pod.spec_units:
            charged = units.converted(pod.spec_units, given, facts.unit)
            message = GIVEN_OTHERWISE.format(given=given, unit=facts.unit, amount=pod.spec_units, charged=charged)
            problems.append(Finding(OTHER_UNIT, message, pod))
    return problems


def _by_hand(facts: NodeFacts, pods: list[PodFacts]) -> list[Finding]:
    """Pods that were bound without the extender. The event is on the node: the pod's owner has done it himself."""
    problems = []
    for pod in pods:
        if not pod.annotations:
            what = event_texts.SEES_NONE if pod_gpus.sees_nothing(pod, facts) else event_texts.COUNTS_ON_ALL
            problems.append(Finding(BOUND_BY_HAND, event_texts.bound_by_hand(pod, what)))
    return problems


def _nvidia_too(facts: NodeFacts, node: objects.Node) -> list[Finding]:
    """NVIDIA's device plugin gives out the same GPUs: the node has nvidia.com/gpu, or more of it than we sell."""
    count = units.number(node.status.allocatable, names.NVIDIA_GPU)
    if count <= (len(facts.gpus) if facts.nvidia_whole else 0):
        return []
    return [Finding(NVIDIA_TOO, SOLD_TWICE.format(count=count))]


def _too_small(facts: NodeFacts) -> list[Finding]:
    """GPUs that are listed with 0 units."""
    way = SMALLER_UNIT if facts.unit == names.GIB else SMALLER_RESERVE
    return [
        Finding(
            TOO_SMALL,
            SMALLER_THAN_UNIT.format(
                gpu=gpu.index, model=f" ({gpu.model})" if gpu.model else "", unit=facts.unit, way=way
            ),
        )
        for gpu in facts.gpus
        if not gpu.total
    ]


def _overcommitted(facts: NodeFacts, pods: list[PodFacts]) -> list[Finding]:
    """GPUs of which pods hold more than there is, of memory or of MPS slots."""
    units_by_gpu: Holders = {}
    slots_by_gpu: Holders = {}
    for pod in pods:
        for gpu, amount, slots in pod_gpus.read(pod, facts) or ():
            units_by_gpu.setdefault(gpu, []).append((amount, pod))
            if slots:
                slots_by_gpu.setdefault(gpu, []).append((slots, pod))
    held_by: list[tuple[int, int, str, list[tuple[int, PodFacts]]]] = []
    held_by += [(gpu, facts.gpus[gpu].total, facts.unit, on) for gpu, on in sorted(units_by_gpu.items())]
    held_by += [(gpu, facts.slots, MPS_SLOTS, on) for gpu, on in sorted(slots_by_gpu.items())]
    problems = []
    for gpu, total, unit, on in held_by:
        held = sum(amount for amount, _ in on)
        if held > total:
            message = HOLDS_TOO_MUCH.format(
                gpu=facts.gpus[gpu].index, held=held, total=total, unit=unit, pods=_named(on)
            )
            problems.append(Finding(OVERCOMMITTED, event_texts.cut(message)))
    return problems


def _named(on: list[tuple[int, PodFacts]]) -> str:
    """`ns/name amount` of the largest pods: one of those is the one to delete."""
    largest = sorted(on, key=lambda pair: (-pair[0], pair[1].namespace, pair[1].name))
    texts = [f"{pod.namespace}/{event_texts.short_name(pod.name)} {amount}" for amount, pod in largest[:MOST_NAMED]]
    return ", ".join([*texts, f"{len(on) - MOST_NAMED} more"] if len(on) > MOST_NAMED else texts)
