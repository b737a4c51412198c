"""Would it fit? Pods that exist only in a file, placed one by one.

Pure, on a ledger of its own: what is placed is assumed there, so that the next replica, and the next item of the file,
see it. A node is chosen as the extender would choose it. The pods come as the API server admits them, see `admitted`.
"""

from collections import Counter
from collections.abc import Collection

import msgspec

from gpushare.core.explain import report, verdict
from gpushare.core.explain.report import Explanation, Replicas, Way
from gpushare.core.facts import intree, policies, request
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.facts.objects import Toleration
from gpushare.core.scheduling import ranking
from gpushare.ctl.why import judgement, pod_details
from gpushare.ctl.why.files.manifests import Item
from gpushare.ctl.why.scheduler_checks import Keeping, Rest
from gpushare.view.snapshot import Snapshot

_OF_A_NODE = (intree.TAINT, intree.NODE_SELECTOR, intree.NODE_AFFINITY)  # what a DaemonSet means by "every node"
# What the DaemonSet controller lets its pods tolerate.
_TOLERATED = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists")
    for key in ("unschedulable", "not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure")
)

Place = tuple[str, int | None]  # node, and GPU if it is a single one


class Drafts:
    def __init__(self, world: Snapshot) -> None:
        self._world, self._rest = world, Rest(world)
        self._placed: list[tuple[str, pod_details.Pod, str]] = []  # uid, pod and node, in the order they came
        self._before = 0  # how many were placed before the last item

    def place(self, item: Item, admitted: pod_details.Pod) -> Explanation:
        """What becomes of an item whose pods are admitted so: of the first that does not fit or, if all do, of the
        first."""
        self._before = len(self._placed)
        pod = _of_every_node(admitted) if item.every_node else admitted
        facts = request.facts(pod, None)
        said = judgement.about(judgement.judged(self._world, self._rest, pod, facts), pod)
        if isinstance(facts.request, Request):
            said = self._all(item, pod, facts, said)
        if not item.is_pod:
            said.kind = item.kind
        return said

    def take_back(self) -> None:
        """As if the last item had not been placed."""
        for uid, pod, node in self._placed[self._before :]:
            self._world.ledger.release(uid)
            self._rest.add(pod, node, -1)
        del self._placed[self._before :]

    def _all(self, item: Item, pod: pod_details.Pod, facts: PodFacts, first: Explanation) -> Explanation:
        keeping = self._rest.keeping(pod, facts, every_node=item.every_node)
        targets: list[Collection[str] | None] = [None] * item.replicas
        if item.every_node:
            targets = [[name] for name, found in keeping.items() if not any(o.code in _OF_A_NODE for o in found)]
        places: list[Place] = []
        said = first
        for among in targets:
            place = self._put(pod, facts, keeping, among)
            if place is None:
                said = judgement.about(judgement.judged(self._world, self._rest, pod, facts, among=among), pod)
                break
            places.append(place)
        if item.is_pod:
            return said
        said.replicas = Replicas(len(targets), len(places))
        if len(places) == len(targets) and (len(targets) != 1 or item.every_node):
            said.verdict, said.code, said.message = "fits", report.FITS, verdict.FITS
            said.ways = [Way("wait", node=n, gpu=gpu, count=count) for (n, gpu), count in Counter(places).items()]
        return said

    def _put(
        self, pod: pod_details.Pod, facts: PodFacts, keeping: Keeping, among: Collection[str] | None
    ) -> Place | None:
        """Assumes the best place there is for one more, and says which."""
        ledger = self._world.ledger
        candidates = [name for name in (ledger.node_names() if among is None else among) if not keeping.get(name)]
        assert isinstance(facts.request, Request)
        policy = facts.request.policy or policies.DEFAULT
        fits = ledger.fitting(facts.request, facts, candidates)
        best = ranking.best(ledger, facts.request, facts, fits, policy)
        if not best:
            return None
        node = best[0][0]
        draft = msgspec.structs.replace(facts, uid=f"draft-{len(self._placed)}")
        if isinstance(ledger.assume(draft, node, policy, self._world.now), Refusal):
            return None
        self._placed.append((draft.uid, pod, node))
        self._rest.add(pod, node)
        keeping[node] = self._rest.of(pod, facts, node)
        return node, self._single_gpu(node, draft.uid)

    def _single_gpu(self, node: str, uid: str) -> int | None:
        facts, holding = self._world.ledger.facts(node), self._world.ledger.holding(uid)
        charges = (holding.charges if holding is not None else None) or ()
        return facts.gpus[charges[0][0]].index if facts is not None and len(charges) == 1 else None


def _of_every_node(pod: pod_details.Pod) -> pod_details.Pod:
    spec = msgspec.structs.replace(pod.spec, tolerations=(*(pod.spec.tolerations or ()), *_TOLERATED))
    return msgspec.structs.replace(pod, spec=spec)
