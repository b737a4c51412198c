"""What each node, GPU and pod of a cluster uses: what the tables show, as numbers.

Pure, from a `Snapshot`. A pod that is bound without a known GPU is called *pending*, the word of Aliyun's table: it has
a column of its own. Nodes that offer GPU memory without saying how many GPUs they have are included, because Aliyun's
table shows them.
"""

from collections.abc import Sequence

import msgspec

from gpushare.core.annotations.node_gpus import MIB_ABOVE
from gpushare.core.facts import intree, names, units
from gpushare.core.facts.model import Gpu, NodeFacts, PodFacts, Request, Unit
from gpushare.core.ledger.holding import Holding
from gpushare.core.ledger.node_state import NodeState
from gpushare.view import measured
from gpushare.view.measured import Measured
from gpushare.view.snapshot import NodeStatus, Snapshot

UNKNOWN = "unknown"
MIB_IN_GIB = 1024
UNASKED = 'its scheduler did not ask gpushare. See docs/install.md, "Is the extender asked?"'
UNUSABLE = "its annotations name no GPU of that node, or do not match what it asks."
UNCOUNTED = f"that node does not say how many GPUs it has ({names.GPU_COUNT})."


class GpuUse(msgspec.Struct):
    index: int
    used: int
    total: int
    free: int  # what may be given out: an unlocated pod counts on every GPU
    healthy: bool = True
    slots: int = 0  # MPS slots that it has
    used_slots: int = 0


class PodUse(msgspec.Struct):
    pod: PodFacts
    on: dict[int, int]  # units by index of the GPU
    pending: int = 0  # units without a known GPU
    why: str = ""  # why there are such units
    slots: dict[int, int] = {}  # MPS slots by index of the GPU


class NodeUse(msgspec.Struct):
    name: str
    address: str
    unit: Unit
    total: int
    gpus: list[GpuUse]
    pods: list[PodUse]
    facts: NodeFacts | None = None  # what it publishes of its GPUs
    measured: Measured | None = None  # what they do; None: it publishes nothing of that, or nobody asked

    @property
    def pending(self) -> int:
        return sum(pod.pending for pod in self.pods)

    @property
    def used(self) -> int:
        return sum(gpu.used for gpu in self.gpus) + self.pending

    @property
    def largest_free(self) -> int:
        return max((gpu.free for gpu in self.gpus if gpu.healthy), default=0)

    @property
    def indices(self) -> list[int]:
        """Those of its GPUs, in order; there may be gaps."""
        return [gpu.index for gpu in self.gpus]


def nodes(cluster: Snapshot) -> list[NodeUse]:
    """The nodes that offer GPU memory, by name."""
    uses = (
        _node(node, state) for node in cluster.nodes if not _sells(state := cluster.ledger.node(node.metadata.name))
    )
    found = [use for use in uses if use is not None]
    for use in found if cluster.doing else ():
        use.measured = measured.of_node(cluster.doing.get(use.name), use.facts, cluster.now)
    return found


def in_one_unit(uses: Sequence[NodeUse]) -> tuple[Unit | None, list[NodeUse]]:
    """The nodes with all amounts in the same unit: in MiB if their units differ."""
    if len({node.unit for node in uses}) < 2:
        return (uses[0].unit if uses else None), list(uses)
    return "MiB", [_in_mib(node) if node.unit == "GiB" else node for node in uses]


def _sells(state: NodeState | None) -> bool:
    """Whether a node sells whole GPUs or replicas instead, and no pod from before still has memory there."""
    return state is not None and state.facts is not None and bool(state.facts.sold) and not list(state.holdings())


def _node(node: intree.Node, state: NodeState | None) -> NodeUse | None:
    facts = state.facts if state is not None else None
    if facts is None:
        return _without_count(node, state)
    assert state is not None
    assert state.room is not None
    gpus = [
        GpuUse(gpu.index, used, gpu.total, free, gpu.healthy, facts.slots, slots)
        for gpu, used, free, slots in zip(facts.gpus, state.used, state.room.free, state.used_slots, strict=True)
    ]
    pods = [_pod(holding, facts) for holding in state.holdings()]
    return NodeUse(facts.name, address(node), facts.unit, facts.capacity, gpus, pods, facts)


def _without_count(node: intree.Node, state: NodeState | None) -> NodeUse | None:
    """A node that offers GPU memory, but does not say how many GPUs it has."""
    memory = units.number(node.status.capacity, names.GPU_MEM)
    if not memory:
        return None
    pods = [PodUse(h.pod, {}, h.pod.spec_units, UNCOUNTED) for h in (state.holdings() if state else ())]
    unit: Unit = "MiB" if memory > MIB_ABOVE else "GiB"
    return NodeUse(node.metadata.name, address(node), unit, memory, [], pods)


def _pod(holding: Holding, facts: NodeFacts) -> PodUse:
    pod = holding.pod
    if holding.charges is None:
        chosen = pod.annotation(names.ALLOCATION) or pod.annotation(names.ALIYUN_IDX) or pod.annotation(names.EXTENDER)
        request = pod.request if isinstance(pod.request, Request) else None
        return PodUse(pod, {}, _unlocated(pod, request, facts.gpus), UNUSABLE if chosen else UNASKED)
    on = {facts.gpus[gpu].index: amount for gpu, amount, _ in holding.charges}
    return PodUse(pod, on, slots={facts.gpus[gpu].index: slots for gpu, _, slots in holding.charges if slots})


def _unlocated(pod: PodFacts, request: Request | None, gpus: Sequence[Gpu]) -> int:
    """What an unlocated pod takes of a node. Its whole GPUs count as the largest ones."""
    whole = sum(share.gpus for share in request.shares if share.kind.exclusive) if request else 0
    return pod.spec_units + sum(sorted((gpu.total for gpu in gpus), reverse=True)[:whole])


def address(node: intree.Node) -> str:
    """Where the node is reached."""
    known = node.status.addresses if isinstance(node.status, NodeStatus) else None
    return next((one.address for one in known or () if one.type == "InternalIP"), UNKNOWN)


def _in_mib(node: NodeUse) -> NodeUse:
    gpus = [
        msgspec.structs.replace(g, used=g.used * MIB_IN_GIB, total=g.total * MIB_IN_GIB, free=g.free * MIB_IN_GIB)
        for g in node.gpus
    ]
    pods = [
        msgspec.structs.replace(
            pod, on={gpu: amount * MIB_IN_GIB for gpu, amount in pod.on.items()}, pending=pod.pending * MIB_IN_GIB
        )
        for pod in node.pods
    ]
    return msgspec.structs.replace(node, total=node.total * MIB_IN_GIB, gpus=gpus, pods=pods)
