"""kube-scheduler's own checks, node by node: everything but GPU memory.

Pure, from a `Snapshot`. Its `Insufficient aliyun.com/gpu-mem` is GPU memory as well: where gpushare refuses a node,
gpushare's sentence says what it means, and this check does not count. It counts where gpushare sees room.
"""

from collections.abc import Collection, Mapping

from gpushare.core.explain.report import NodeView, Reason, Way
from gpushare.core.facts import intree, kinds, objects, units
from gpushare.core.facts.intree import Obstacle
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.placement import fit
from gpushare.core.placement.fit import Question
from gpushare.view import sold
from gpushare.view.snapshot import Snapshot
from gpushare.view.sold import Buyer

GPU_TOTALS = tuple(kinds.BY_RESOURCE)
NVIDIA_ONLY = "{resources} only"
LABEL = ("gpushare", "true")  # where the device plugin runs

Obstacles = dict[str, list[Obstacle]]
"""By node: what keeps kube-scheduler from sending a pod there."""


class SchedulerChecks:
    """What is taken on each node, as kube-scheduler counts it, and so what keeps a pod off the node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._nodes = {node.metadata.name: node for node in snapshot.nodes}
        self._pods: dict[str, list[objects.Pod]] = {name: [] for name in self._nodes}
        for pod in snapshot.pods:
            if pod.spec.node_name in self._pods:
                self._pods[pod.spec.node_name].append(pod)
        self._taken: dict[str, dict[str, int]] = {}  # of the nodes that were checked: sums cost time
        self.sold = sold.uses(snapshot)

    def obstacles(self, pod: intree.Pod, facts: PodFacts, *, every_node: bool = False) -> Obstacles:
        """All that keeps a pod off each node that may have a GPU, or off each node of the cluster."""
        ledger, nodes = self._snapshot.ledger, self._nodes.items()
        checked = [name for name, node in nodes if every_node or ledger.node(name) is not None or _unshared(node)]
        return {name: self.obstacles_on(name, pod, facts) for name in checked}

    def obstacles_on(self, name: str, pod: intree.Pod, facts: PodFacts) -> list[Obstacle]:
        """All that keeps a pod off one node."""
        obstacles = self.all_on(name, pod)
        if any(obstacle.subject in GPU_TOTALS for obstacle in obstacles) and not self._has_room(facts, name):
            return [obstacle for obstacle in obstacles if obstacle.subject not in GPU_TOTALS]
        return obstacles

    def all_on(self, name: str, pod: intree.Pod) -> list[Obstacle]:
        """The same, with every total that is short."""
        return intree.obstacles(pod, self._nodes[name], self._totals(name))

    def add(self, pod: intree.Pod, name: str, times: int = 1) -> None:
        """Count one more pod on a node; with `times` -1 one less."""
        taken = self._totals(name)
        for resource, amount in intree.needs(pod).items():
            taken[resource] = taken.get(resource, 0) + amount * times
        taken[intree.PODS] += times
        asked = sold.asked(pod)
        for use in self.sold:
            if use.node == name and use.resource in asked and times > 0:
                use.buyers.append(Buyer(pod, asked[use.resource]))
            elif use.node == name and use.resource in asked:
                use.buyers.pop()

    def _totals(self, name: str) -> dict[str, int]:
        if name not in self._taken:
            self._taken[name] = intree.totals(self._pods[name])
        return self._taken[name]

    def _has_room(self, facts: PodFacts, name: str) -> bool:
        state, request = self._snapshot.ledger.node(name), facts.request
        if state is None or state.facts is None or not isinstance(request, Request):
            return False
        return self._snapshot.ledger.refusal(Question(request), name, facts) is None


def reason(obstacles: list[Obstacle]) -> Reason | None:
    """All obstacles of a node in one line."""
    if not obstacles:
        return None
    return Reason(obstacles[0].code, "; ".join(obstacle.detail for obstacle in obstacles))


def tolerate(nodes: list[NodeView], obstacles: Mapping[str, list[Obstacle]]) -> list[Way]:
    """The closest node with room that only taints keep the pod off."""
    for node in nodes:
        on_node = obstacles.get(node.name, [])
        if node.fits and on_node and all(obstacle.code == intree.TAINT for obstacle in on_node):
            return [Way("tolerate", node=node.name, taint=" and ".join(obstacle.subject for obstacle in on_node))]
    return []


def unshared_nodes(
    snapshot: Snapshot, shown: Collection[str], among: Collection[str] | None
) -> tuple[list[NodeView], int]:
    """Nodes that share no GPU: those of which one may expect it, with the reason, and the number of the others.
    `shown`: nodes that are listed already. `among`: the only nodes that count, and all of these are listed."""
    views, without = [], 0
    for node in snapshot.nodes:
        name = node.metadata.name
        if name in shown or (among is not None and name not in among):
            continue
        refusal = _unshared(node)
        if refusal is None and among is not None:
            refusal = _reason(fit.NO_SHARED_GPU)
        if refusal is None:
            without += 1
        else:
            views.append(NodeView(name, False, None, refusal, None, []))
    return views, without


def _unshared(node: intree.Node) -> Reason | None:
    capacity, allocatable = node.status.capacity or {}, node.status.allocatable
    if any(resource in capacity for resource in GPU_TOTALS) or LABEL in (node.metadata.labels or {}).items():
        return _reason(fit.PLUGIN_DOWN)  # kubelet keeps a resource, at 0, after its plugin
    theirs = [name for name in allocatable or () if sold.is_sold(name) and units.number(allocatable, name)]
    return _reason(fit.NO_SHARED_GPU, NVIDIA_ONLY.format(resources=", ".join(sorted(theirs)))) if theirs else None


def _reason(refusal: Refusal, detail: str = "") -> Reason:
    return Reason(refusal.code, refusal.message, detail)
