"""All that is known about one pod, gathered before an answer is made of it.

Pure, from the cluster as it was read. gpushare's part comes from the core, or from a running extender. The part of
kube-scheduler is its own checks, node by node. Then there is what the API server shows: kube-scheduler's last message
and the state of the containers. Of a pod in a file it is what its replicas and its admission came to. `explanation`
makes the answer of all this.
"""

from collections.abc import Collection

import msgspec

from gpushare.core.explain import verdict
from gpushare.core.explain.report import Explanation, NodeView, Otherwise, Quote, Replicas, Way
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.facts.vitals import FullStatus
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import pod_details, scheduler_checks
from gpushare.view.why.placing import BY_DEFAULT, Placing
from gpushare.view.why.scheduler_checks import Obstacles, SchedulerChecks


class SchedulerPart(msgspec.Struct, frozen=True):
    """kube-scheduler's checks, and the nodes that only it knows: those that share no GPU."""

    obstacles: Obstacles
    unshared: list[NodeView]
    without_gpu: int  # how many nodes have no GPU, and are not listed

    @property
    def barred(self) -> set[str]:
        return _barred(self.obstacles)


class Evidence(msgspec.Struct, frozen=True):
    pod: pod_details.Pod
    gpushare: Explanation  # gpushare's part alone
    scheduler: SchedulerPart | None = None  # None: not checked, or the pod has its node
    quote: Quote | None = None
    doing: FullStatus | None = None  # what the GPUs of its node do
    now: float | None = None  # None: the pod exists only in a file, and no scheduler and no kubelet has seen it
    # Of a pod in a file:
    kind: str | None = None
    replicas: Replicas | None = None
    places: list[Way] | None = None  # where they would go, if all of several replicas fit
    admission: str | None = None
    otherwise: Otherwise | None = None


def gather(
    snapshot: Snapshot,
    checks: SchedulerChecks,
    pod: pod_details.Pod,
    facts: PodFacts,
    by: Placing = BY_DEFAULT,
    *,
    among: Collection[str] | None = None,
) -> Evidence:
    """What the core says, and kube-scheduler's checks. `among`: the only nodes that are asked."""
    if not isinstance(facts.request, Request) or facts.node or facts.finished:
        return Evidence(pod, verdict.explain(snapshot.ledger, facts))
    obstacles = checks.obstacles(pod, facts)
    part = verdict.explain(
        snapshot.ledger, facts, barred=_barred(obstacles), among=among, policy=by.policy, node_points=by.points
    )
    return Evidence(pod, part, _scheduler_part(snapshot, part, obstacles, among))


def from_extender(snapshot: Snapshot, pod: pod_details.Pod, facts: PodFacts, answer: Explanation) -> Evidence:
    """A running extender's answer instead of the core's."""
    if facts.node:
        return Evidence(pod, answer)
    obstacles = SchedulerChecks(snapshot).obstacles(pod, facts)
    return Evidence(pod, answer, _scheduler_part(snapshot, answer, obstacles, None))


def _scheduler_part(
    snapshot: Snapshot, part: Explanation, obstacles: Obstacles, among: Collection[str] | None
) -> SchedulerPart:
    shown = {node.name for node in part.nodes}
    return SchedulerPart(obstacles, *scheduler_checks.unshared_nodes(snapshot, shown, among))


def _barred(obstacles: Obstacles) -> set[str]:
    return {name for name, on_node in obstacles.items() if on_node}
