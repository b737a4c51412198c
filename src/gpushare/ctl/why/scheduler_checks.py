"""The rest: what kube-scheduler looks at, node by node, apart from GPU memory.

Pure, from a `Snapshot`; called by `judge` and `drafts`. Its `Insufficient aliyun.com/gpu-mem` is GPU memory: where
gpushare refuses a node anyway, gpushare's sentence says what it means; only where gpushare sees room does it count.
"""

from collections.abc import Collection, Mapping

from gpushare.core.explain.report import NodeView, Said, Way
from gpushare.core.facts import intree, names, objects, units
from gpushare.core.facts.intree import Obstacle
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.placement import fit
from gpushare.core.placement.fit import Question
from gpushare.view.snapshot import Snapshot

GPU_TOTALS = (names.GPU_MEM, names.GPU_COUNT)
NVIDIA_ONLY = f"{names.NVIDIA_GPU} only"
LABEL = ("gpushare", "true")  # where the device plugin runs

Keeping = dict[str, list[Obstacle]]


class Rest:
    """What is taken on each node, as kube-scheduler counts, and with that what keeps a pod off it."""

    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen
        self._nodes = {node.metadata.name: node for node in seen.nodes}
        self._there: dict[str, list[objects.Pod]] = {name: [] for name in self._nodes}
        for pod in seen.pods:
            if pod.spec.node_name in self._there:
                self._there[pod.spec.node_name].append(pod)
        self._taken: dict[str, dict[str, int]] = {}  # of the nodes that were asked about: sums cost time

    def keeping(self, pod: intree.Pod, facts: PodFacts, *, every_node: bool = False) -> Keeping:
        """All that keeps a pod off a node, by the name of the node; of those that might have a GPU, or of all."""
        ledger, nodes = self._seen.ledger, self._nodes.items()
        asked = [name for name, node in nodes if every_node or ledger.node(name) is not None or _unshared(node)]
        return {name: self.of(pod, facts, name) for name in asked}

    def of(self, pod: intree.Pod, facts: PodFacts, name: str) -> list[Obstacle]:
        found = intree.obstacles(pod, self._nodes[name], self._totals(name))
        if any(obstacle.subject in GPU_TOTALS for obstacle in found) and not self._has_room(facts, name):
            return [obstacle for obstacle in found if obstacle.subject not in GPU_TOTALS]
        return found

    def add(self, pod: intree.Pod, name: str, times: int = 1) -> None:
        """Count one more pod on a node; `times` -1 takes it back."""
        taken = self._totals(name)
        for resource, amount in intree.needs(pod).items():
            taken[resource] = taken.get(resource, 0) + amount * times
        taken[intree.PODS] += times

    def _totals(self, name: str) -> dict[str, int]:
        if name not in self._taken:
            self._taken[name] = intree.totals(self._there[name])
        return self._taken[name]

    def _has_room(self, facts: PodFacts, name: str) -> bool:
        state, request = self._seen.ledger.node(name), facts.request
        if state is None or state.facts is None or not isinstance(request, Request):
            return False
        return self._seen.ledger.refusal(Question(request), name, facts) is None


def said(obstacles: list[Obstacle]) -> Said | None:
    """The same for people, in one line."""
    if not obstacles:
        return None
    return Said(obstacles[0].code, "; ".join(obstacle.detail for obstacle in obstacles))


def tolerate(views: list[NodeView], keeping: Mapping[str, list[Obstacle]]) -> list[Way]:
    """The closest node with room that nothing but taints keeps the pod off."""
    for view in views:
        found = keeping.get(view.name, [])
        if view.fits and found and all(obstacle.code == intree.TAINT for obstacle in found):
            return [Way("tolerate", node=view.name, taint=" and ".join(obstacle.subject for obstacle in found))]
    return []


def others(seen: Snapshot, shared: set[str], among: Collection[str] | None) -> tuple[list[NodeView], int]:
    """Nodes that share no GPU: those where one might expect it, with the reason, and how many others there are.
    `among`: the only nodes that are looked at, and all of them are."""
    views, without = [], 0
    for node in seen.nodes:
        name = node.metadata.name
        if name in shared or (among is not None and name not in among):
            continue
        refused = _unshared(node)
        if refused is None and among is not None:
            refused = Said(fit.NO_SHARED_GPU.code, fit.NO_SHARED_GPU.message)
        if refused is None:
            without += 1
        else:
            views.append(NodeView(name, False, None, refused, None, []))
    return views, without


def _unshared(node: intree.Node) -> Said | None:
    capacity, allocatable = node.status.capacity or {}, node.status.allocatable
    if any(resource in capacity for resource in GPU_TOTALS) or LABEL in (node.metadata.labels or {}).items():
        return Said(fit.PLUGIN_DOWN.code, fit.PLUGIN_DOWN.message)  # kubelet keeps a resource, at 0, after its plugin
    if units.number(allocatable, names.NVIDIA_GPU):
        return Said(fit.NO_SHARED_GPU.code, fit.NO_SHARED_GPU.message, NVIDIA_ONLY)
    return None
