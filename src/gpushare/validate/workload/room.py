"""Whether a pod may be tried now, and what it asks for: the smallest there is, and never what others wait for. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import intree, names, units
from gpushare.core.facts.model import NodeFacts, Pin
from gpushare.core.facts.objects import FINISHED
from gpushare.validate.rules import plugin, verdict
from gpushare.validate.rules.verdict import Verdict
from gpushare.view import snapshot, sold, usage

DEFAULT_SCHEDULER: Final = "default-scheduler"

SAYS_NOTHING: Final = "the node does not say what it sells"
CORDONED: Final = "the node is cordoned: no new pod goes there"
NOTHING_FREE: Final = "no {resource} is free on this node"
OTHERS_WAIT: Final = "pods wait for {resource}, such as {pod}: nothing is taken from them"


class Asked(NamedTuple):
    """`expected`: by the node's annotation, which GPUs there are. `scheduler`: who places such pods."""

    resource: str
    facts: NodeFacts
    scheduler: str
    annotations: dict[str, str]

    @property
    def by_count(self) -> bool:
        """Whether kubelet alone knows which GPU a pod has."""
        return self.facts.pin is Pin.NVIDIA


def asked(node: intree.Node) -> Asked | None:
    """The smallest request; None: the node sells nothing."""
    facts = node_gpus.read(node, frozenset())
    if facts is None or not any(gpu.healthy for gpu in facts.gpus):
        return None
    resource = plugin.resources(facts)[0]
    if facts.pin is Pin.NVIDIA:
        return Asked(resource, facts, DEFAULT_SCHEDULER, {})
    memory = {key: str(units.BYTES_IN[facts.unit]) for key in names.SLOT_MEMORY} if resource == names.MPS_GPU else {}
    return Asked(resource, facts, names.GPU_SCHEDULER, memory)


def obstacle(asks: Asked, node: intree.Node, pods: Sequence[intree.Pod], now: float) -> Verdict | None:
    """Why no pod is tried now; None: nothing is in the way. `pods`: those of this node, and those of no node."""
    if node.spec.unschedulable:
        return verdict.skipped(CORDONED)
    waiting = next(iter(_waiting(asks, node, pods)), None)
    if waiting is not None:
        name = f"{waiting.metadata.namespace}/{waiting.metadata.name}"
        return verdict.skipped(OTHERS_WAIT.format(resource=asks.resource, pod=name))
    return None if _is_free(asks, node, pods, now) else verdict.skipped(NOTHING_FREE.format(resource=asks.resource))


def _is_free(asks: Asked, node: intree.Node, pods: Sequence[intree.Pod], now: float) -> bool:
    cluster = snapshot.build([node], pods, now)
    if asks.by_count:
        return any(use.free > 0 for use in sold.uses(cluster) if use.resource == asks.resource)
    gpus = [gpu for use in usage.nodes(cluster) for gpu in use.gpus if gpu.healthy and gpu.free > 0]
    return any(asks.resource != names.MPS_GPU or gpu.used_slots < gpu.slots for gpu in gpus)


def _waiting(asks: Asked, node: intree.Node, pods: Sequence[intree.Pod]) -> Iterable[intree.Pod]:
    """Pods that ask for GPUs, are on no node yet, and may use this one."""
    free = [pod for pod in pods if not (pod.spec.node_name or pod.metadata.deletion_timestamp)]
    for pod in free:
        if pod.status.phase not in FINISHED and not pod.spec.scheduling_gates and _competes(asks, pod):
            keeps_off = intree.obstacles(pod, node, {})
            if not any(one.code != intree.INSUFFICIENT for one in keeps_off):
                yield pod


def _competes(asks: Asked, pod: intree.Pod) -> bool:
    needs = intree.needs(pod)
    wanted = (asks.resource,) if asks.by_count else names.PINNED
    return any(needs.get(resource, 0) > 0 for resource in wanted)
