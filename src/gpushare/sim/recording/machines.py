"""The nodes of a live cluster that have GPUs, as a trace has them.

A node is read from what gpushare publishes there. Where gpushare does not run, it is read from what NVIDIA's plugin
sells and from the labels of GPU Feature Discovery, so that policies can be tried before anything is installed. Pods of
the node itself (DaemonSets, static pods) are no part of a trace: what they ask is taken off the node.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gpushare.core.facts import intree, names, units
from gpushare.core.facts.model import NodeFacts
from gpushare.sim.reading import checks
from gpushare.sim.trace import Gpu, Node
from gpushare.view.snapshot import Snapshot

UNKNOWN_MEMORY_MIB = 16384  # of a GPU whose node does not say it: whole GPUs need no size, but a trace does
_MIB = 1 << 20
_COUNT, _REPLICAS, _PRODUCT, _MEMORY = (
    f"{names.NVIDIA_GPU}.{word}" for word in ("count", "replicas", "product", "memory")
)


class Machine(msgspec.Struct):
    """A node with what is needed to understand the pods on it. `replicas`: pods may ask for these parts of a GPU by
    count; 0: they ask the ledger of gpushare."""

    node: Node
    facts: NodeFacts | None
    replicas: int = 0

    def share(self) -> int:
        """MiB of a GPU that one replica stands for; 0: the whole GPU."""
        smallest = min(gpu.memory_mib for gpu in self.node.gpus)
        return max(smallest // self.replicas, 1) if self.replicas > 1 else 0


def read(cluster: Snapshot) -> dict[str, Machine]:
    """By name of the node."""
    taken: dict[str, list[intree.Pod]] = {}
    for pod in cluster.pods:
        if pod.metadata.comes_with_node and pod.spec.node_name:
            taken.setdefault(pod.spec.node_name, []).append(pod)
    found = (
        _machine(node, cluster.ledger.facts(node.metadata.name), taken.get(node.metadata.name, ()))
        for node in cluster.nodes
    )
    return {machine.node.name: machine for machine in found if machine is not None}


def _machine(node: intree.Node, facts: NodeFacts | None, taken: Iterable[intree.Pod]) -> Machine | None:
    labels = node.metadata.labels or {}
    gpus = _published(facts) if facts is not None else _labelled(node, labels)
    if not gpus:
        return None
    offered, used = intree.offered(node), intree.totals(taken)
    cpu = max(offered.get(intree.CPU, 0) - used.get(intree.CPU, 0), 0)
    memory = max(offered.get(intree.MEMORY, 0) - used.get(intree.MEMORY, 0), 0) // _MIB
    if facts is None:
        replicas = _number(labels, _REPLICAS) or 1
    else:
        replicas = max((sold.replicas for sold in facts.sold), default=0)
    return Machine(Node(node.metadata.name, cpu, memory, gpus), facts, replicas)


def _published(facts: NodeFacts) -> tuple[Gpu, ...]:
    """Unhealthy ones too: they come back."""
    sizes = [(units.converted(gpu.total, facts.unit, names.MIB), gpu.model) for gpu in facts.gpus]
    return tuple([Gpu(size, model) for size, model in sizes if size])


def _labelled(node: intree.Node, labels: Mapping[str, str]) -> tuple[Gpu, ...]:
    """What NVIDIA's plugin sells is replicas, if it shares GPUs: then the label says how many there are."""
    sold = max(units.number(node.status.capacity, name) for name in names.NVIDIA_GPUS)
    count = min(_number(labels, _COUNT) or sold, sold, checks.MOST_GPUS)
    memory = _number(labels, _MEMORY)
    known = 0 < memory <= checks.MOST_GPU_MEMORY
    return (Gpu(memory if known else UNKNOWN_MEMORY_MIB, labels.get(_PRODUCT, "")),) * count


def _number(labels: Mapping[str, str], name: str) -> int:
    amount = units.parse(labels.get(name, ""))
    return amount.value if amount is not None else 0
