"""What nodes sell by count, without gpushare's scheduler: whole GPUs or replicas of them, as NVIDIA's plugin does.

Pure, from a `Snapshot`. Such a node runs `gpushare node --sell=gpus`, or NVIDIA's own plugin. It is counted as
kube-scheduler counts it, because nobody else decides there: what is allocatable, less what the pods on the node ask.
Nodes that sell nvidia.com/gpu out of gpushare's ledger are not among them: `usage` has those.
"""

from collections.abc import Iterator

import msgspec

from gpushare.core.facts import intree, names, units
from gpushare.core.facts.model import NodeFacts
from gpushare.core.facts.objects import FINISHED
from gpushare.view.snapshot import Snapshot

# Labels of NVIDIA's gpu-feature-discovery, where it runs.
_SHARING_LABEL = "{resource}.sharing-strategy"
_COUNT_LABEL = f"{names.NVIDIA_GPU}.count"
_SHARED = ".shared"  # how the name of a resource ends whose replicas were renamed


class Buyer(msgspec.Struct):
    """A pod on the node, and how many it has."""

    pod: intree.Pod
    amount: int


class SoldUse(msgspec.Struct):
    """One resource of one node."""

    node: str
    resource: str
    total: int  # that may be given out
    unhealthy: int  # that may not
    buyers: list[Buyer]  # by namespace and name
    sharing: str = ""  # none, time-slicing or mps; empty: not known
    gpus: int | None = None  # of the node; None: not known

    @property
    def used(self) -> int:
        return sum(buyer.amount for buyer in self.buyers)

    @property
    def left(self) -> int:
        """Negative where pods hold more than may be given out now: the GPUs of some became unhealthy."""
        return self.total - self.used

    @property
    def free(self) -> int:
        return max(self.left, 0)


def is_sold(resource: str) -> bool:
    """Whether it is a resource of NVIDIA's plugin."""
    return resource in names.NVIDIA_GPUS or resource.startswith(names.NVIDIA_SLICES)


def asked(pod: intree.Pod) -> dict[str, int]:
    """What a pod asks of such resources, in the order of their names."""
    return {name: amount for name, amount in sorted(intree.needs(pod).items()) if amount > 0 and is_sold(name)}


def uses(cluster: Snapshot) -> list[SoldUse]:
    """All that nodes sell by count, by node and resource."""
    selling = [use for node in cluster.nodes for use in _of_node(node, cluster.ledger.facts(node.metadata.name))]
    if not selling:
        return []
    by_node: dict[str, list[SoldUse]] = {}
    for use in selling:
        by_node.setdefault(use.node, []).append(use)
    for pod in cluster.pods:
        there = by_node.get(pod.spec.node_name or "")
        if there and pod.status.phase not in FINISHED:
            amounts = asked(pod)
            for use in there:
                if use.resource in amounts:
                    use.buyers.append(Buyer(pod, amounts[use.resource]))
    return selling


def _of_node(node: intree.Node, facts: NodeFacts | None) -> Iterator[SoldUse]:
    if facts is not None and facts.nvidia_whole:
        return
    capacity, allocatable, labels = node.status.capacity, node.status.allocatable, node.metadata.labels or {}
    published = {sold.resource: sold.sharing for sold in facts.sold} if facts is not None else {}
    offered = [name for name in {**(capacity or {}), **(allocatable or {})} if is_sold(name)]
    for name in sorted({*published, *offered}):
        total, in_all = units.number(allocatable, name), units.number(capacity, name)
        if not (total or in_all or name in published):
            continue  # kubelet keeps the names of what was sold there once, at 0
        sharing = published.get(name) or labels.get(_SHARING_LABEL.format(resource=name.removesuffix(_SHARED)), "")
        gpus = len(facts.gpus) if published and facts is not None else _labelled(labels) if _of_gpus(name) else None
        yield SoldUse(node.metadata.name, name, total, max(in_all - total, 0), [], sharing, gpus)


def _of_gpus(resource: str) -> bool:
    return resource in names.NVIDIA_GPUS


def _labelled(labels: dict[str, str]) -> int | None:
    count = units.parse(labels.get(_COUNT_LABEL, ""))
    return count.value if count is not None else None
