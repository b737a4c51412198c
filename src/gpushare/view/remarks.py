"""Sentences about nodes that figures alone do not explain: for the tables of `inspect`, and for pages.

Pure. Amounts are in the unit of the nodes that are given. `named` says how a pod is called: a reader may not be allowed
to see its name.
"""

from collections.abc import Callable, Sequence

from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts, Unit
from gpushare.core.ledger.ledger import Ledger
from gpushare.view.usage import NodeUse

SLOTS_TOO = "{node} also sells MPS slots as {resource}. In use: {used}."
MPS_DOWN = "{node}: no new pod gets an MPS slot, because its MPS daemon does not work: {why}."
WHOLE_TOO = "{node} also sells its free whole GPUs as {resource}."
UNHEALTHY = "{node} GPU {gpu} is unhealthy: its {free} free {unit} are not given out."
UNHEALTHY_FULL = "{node} GPU {gpu} is unhealthy, and full."
KEPT = "{node} GPU {gpu}: free memory, up to {units} {unit}, is kept for {pod}, whose turn it is."
PENDING = "PENDING: bound to {node} without a GPU (pod {pod}, {units} {unit}): {why}"

Named = Callable[[PodFacts], str]


def pod_name(pod: PodFacts) -> str:
    return pod.name if pod.namespace == "default" else f"{pod.namespace}/{pod.name}"


def pending(shown: Sequence[NodeUse], unit: Unit | None, named: Named = pod_name) -> list[str]:
    return [
        PENDING.format(node=node.name, pod=named(pod.pod), units=pod.pending, unit=unit, why=pod.why)
        for node in shown
        for pod in node.pods
        if pod.pending
    ]


def unhealthy(shown: Sequence[NodeUse], unit: Unit | None) -> list[str]:
    return [
        (UNHEALTHY if gpu.free else UNHEALTHY_FULL).format(node=node.name, gpu=gpu.index, free=gpu.free, unit=unit)
        for node in shown
        for gpu in node.gpus
        if not gpu.healthy
    ]


def kept(ledger: Ledger, shown: Sequence[NodeUse], named: Named = pod_name) -> list[str]:
    """GPUs that look free, but whose free memory most pods do not get."""
    states = [state for node in shown if (state := ledger.node(node.name)) is not None]
    return [
        KEPT.format(
            node=state.name, gpu=state.facts.gpus[gpu].index, units=units, unit=state.facts.unit, pod=named(kept.pod)
        )
        for state in states
        for kept in state.kept()
        for gpu, units, _ in state.charges_of(kept)
        if state.facts is not None
    ]


def slots(shown: Sequence[NodeUse]) -> list[str]:
    """The second limit of a GPU: memory that looks free is of no use to an MPS share without a slot."""
    used = {
        node.name: [f"GPU {gpu.index} {gpu.used_slots} of {gpu.slots}" for gpu in node.gpus if gpu.slots]
        for node in shown
    }
    return [
        SLOTS_TOO.format(node=node, resource=names.MPS_GPU, used=", ".join(gpus)) for node, gpus in used.items() if gpus
    ]


def mps_down(shown: Sequence[NodeUse]) -> list[str]:
    return [
        MPS_DOWN.format(node=node.name, why=node.facts.mps_down)
        for node in shown
        if node.facts is not None and node.facts.mps_down
    ]


def whole(shown: Sequence[NodeUse]) -> list[str]:
    return [
        WHOLE_TOO.format(node=node.name, resource=names.NVIDIA_GPU)
        for node in shown
        if node.facts is not None and node.facts.nvidia_whole
    ]
