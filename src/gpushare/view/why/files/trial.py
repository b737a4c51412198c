"""Would it fit? Pods that exist only in a file are placed one by one, on a trial ledger.

Pure. What is placed counts on that ledger, so that the next replica and the next item of the file see it. A node is
chosen as the extender would choose it. The pods come as the API server will admit them: see `admitted`.
"""

from collections import Counter
from collections.abc import Collection

import msgspec

from gpushare.core.explain.report import Replicas, Way
from gpushare.core.facts import intree, request
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.facts.objects import Toleration
from gpushare.core.scheduling import ranking
from gpushare.view import sold
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import by_count, evidence, placing, pod_details
from gpushare.view.why.evidence import Evidence
from gpushare.view.why.files.manifests import Item
from gpushare.view.why.placing import BY_DEFAULT, Placing
from gpushare.view.why.scheduler_checks import Obstacles, SchedulerChecks

_OF_A_NODE = (intree.TAINT, intree.NODE_SELECTOR, intree.NODE_AFFINITY)  # what a DaemonSet means by "every node"
# What the DaemonSet controller lets its pods tolerate.
_TOLERATED = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists")
    for key in ("unschedulable", "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure")
)

Place = tuple[str, int | None]  # node, and GPU if it is a single one


class Trial:
    def __init__(self, cluster: Snapshot, by: Placing = BY_DEFAULT) -> None:
        self._cluster, self._checks, self._by = cluster, SchedulerChecks(cluster), by
        self._placed: list[tuple[str, pod_details.Pod, str]] = []  # uid, pod and node, in the order they were placed
        self._before = 0  # how many were placed before the last item
        self.places: list[Place] = []  # of the last item

    def place(self, item: Item, admitted: pod_details.Pod) -> Evidence:
        """Places the pods of an item, which are admitted so. The evidence is about the first that does not fit or, if
        all do, about the first."""
        self._before, self.places = len(self._placed), []
        pod = _of_every_node(admitted) if item.every_node else admitted
        facts = placing.with_needs(self._by, request.facts(pod, None), pod)
        first = self._gather(pod, facts, None)
        known = self._place_all(item, pod, facts, first) if first.gpushare.request or first.gpushare.asks else first
        return msgspec.structs.replace(known, kind=item.shown_kind)

    def take_back(self) -> None:
        """As if the last item had not been placed."""
        for uid, pod, node in self._placed[self._before :]:
            self._cluster.ledger.release(uid)
            self._checks.add(pod, node, -1)
        del self._placed[self._before :]
        self.places = []

    def _gather(self, pod: pod_details.Pod, facts: PodFacts, among: Collection[str] | None) -> Evidence:
        if facts.request is None and sold.asked(pod):
            return by_count.gather(self._cluster, self._checks, pod, among=among)
        return evidence.gather(self._cluster, self._checks, pod, facts, self._by, among=among)

    def _place_all(self, item: Item, pod: pod_details.Pod, facts: PodFacts, first: Evidence) -> Evidence:
        if facts.request is None:
            obstacles = {
                node.metadata.name: self._checks.all_on(node.metadata.name, pod) for node in self._cluster.nodes
            }
        else:
            obstacles = self._checks.obstacles(pod, facts, every_node=item.every_node)
        targets: list[Collection[str] | None] = [None] * item.replicas
        if item.every_node:
            targets = [[name] for name, on_node in obstacles.items() if not any(o.code in _OF_A_NODE for o in on_node)]
        places, known = self.places, first
        for among in targets:
            place = self._place_one(pod, facts, obstacles, among)
            if place is None:
                known = self._gather(pod, facts, among)
                break
            places.append(place)
        if item.is_pod:
            return known
        replicas = Replicas(len(targets), len(places))
        several = len(targets) != 1 or item.every_node
        ways = [Way("wait", node=n, gpu=gpu, count=count) for (n, gpu), count in Counter(places).items()]
        all_fit = several and len(places) == len(targets)
        return msgspec.structs.replace(known, replicas=replicas, places=ways if all_fit else None)

    def _place_one(
        self, pod: pod_details.Pod, facts: PodFacts, obstacles: Obstacles, among: Collection[str] | None
    ) -> Place | None:
        """Assumes the best place there is for one more, and says which."""
        if facts.request is None:
            return self._place_by_count(pod, obstacles, among)
        ledger = self._cluster.ledger
        candidates = [name for name in (ledger.node_names() if among is None else among) if not obstacles.get(name)]
        assert isinstance(facts.request, Request)
        policy = self._by.named(facts.request)
        fits = ledger.fitting(facts.request, facts, candidates)
        best = ranking.best(ledger, facts.request, facts, fits, policy, node_points=self._by.points)
        if not best:
            return None
        node = best[0][0]
        draft = msgspec.structs.replace(facts, uid=f"draft-{len(self._placed)}")
        if isinstance(ledger.assume(draft, node, policy, self._cluster.now), Refusal):
            return None
        self._placed.append((draft.uid, pod, node))
        self._checks.add(pod, node)
        obstacles[node] = self._checks.obstacles_on(node, pod, facts)
        return node, self._single_gpu(node, draft.uid)

    def _place_by_count(
        self, pod: pod_details.Pod, obstacles: Obstacles, among: Collection[str] | None
    ) -> Place | None:
        """On the node with the most left of what the pod asks: kube-scheduler's own count decides, and no ledger."""
        asks = sold.asked(pod)
        free: dict[str, int] = {}
        for use in self._checks.sold:
            if use.resource in asks and not obstacles[use.node] and (among is None or use.node in among):
                free[use.node] = min(free.get(use.node, use.free), use.free)
        if not free:
            return None
        node = max(sorted(free), key=lambda name: free[name])
        self._placed.append(("", pod, node))
        self._checks.add(pod, node)
        obstacles[node] = self._checks.all_on(node, pod)
        return node, None

    def _single_gpu(self, node: str, uid: str) -> int | None:
        facts, holding = self._cluster.ledger.facts(node), self._cluster.ledger.holding(uid)
        charges = (holding.charges if holding is not None else None) or ()
        return facts.gpus[charges[0][0]].index if facts is not None and len(charges) == 1 else None


def _of_every_node(pod: pod_details.Pod) -> pod_details.Pod:
    spec = msgspec.structs.replace(pod.spec, tolerations=(*(pod.spec.tolerations or ()), *_TOLERATED))
    return msgspec.structs.replace(pod, spec=spec)
