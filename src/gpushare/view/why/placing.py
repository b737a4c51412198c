"""By which policy `why` works out a place, and what that policy needs to know besides the ledger.

A policy with points looks at what GPUs do: that is read from GPUNodes, and only then. One that packs looks at CPU and
memory of nodes, and expects more pods like those that are there. What an admin says in policy ConfigMaps, and pods
that came and went, are not known here; a running extender knows them (`--extender`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpushare.core.facts import intree, objects, request
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.facts.policies import DEFAULT, POLICIES, Policy
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.facts.vitals import Status
from gpushare.view import vitals
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Source

if TYPE_CHECKING:
    from gpushare.core.scheduling.reach import Reach


class Placing(NamedTuple):
    """`policy` is for pods that name none."""

    policy: str = DEFAULT
    points: NodePoints | None = None

    def named(self, request: Request) -> str:
        return request.policy or self.policy


BY_DEFAULT = Placing()


def gives_points(facts: PodFacts, policy: str) -> bool:
    """Whether its place is chosen by points."""
    return isinstance(facts.request, Request) and _policy(facts.request, policy).score is not None


def _policy(request: Request, policy: str) -> Policy:
    return POLICIES[request.policy or policy or DEFAULT]


def packs(facts: PodFacts, policy: str) -> bool:
    """Whether its place is chosen by what it leaves behind."""
    return isinstance(facts.request, Request) and _policy(facts.request, policy).packing is not None


def prepared(cluster: Snapshot, found: Mapping[str, Status] | None, policy: str, *, packs: bool) -> Placing:
    """`found`: what all GPUs do, if a policy with points is meant. `packs`: one that packs is. The ledger learns what
    such a policy needs."""
    if found is None and not packs:
        return Placing(policy or DEFAULT)
    from gpushare.core.scheduling.reach import NodesByRules, Reach  # commands must start at once

    nodes = NodesByRules()
    for node in cluster.nodes:
        nodes.set_node(node.metadata.name, intree.node_rules(node))
    if packs:
        _teach(cluster, Reach(nodes.allowed, nodes.open_to, nodes.reserved))
    if found is None:
        return Placing(policy or DEFAULT)
    vitals.measure(cluster.ledger, found, cluster.now)
    return Placing(policy or DEFAULT, nodes.points)


def _teach(cluster: Snapshot, reach: "Reach") -> None:
    """The ledger learns what an extender would that had just started."""
    from gpushare.core.scheduling.mix import Mix

    mix = Mix()
    for node in cluster.nodes:
        cpu, memory, _ = intree.node_rules(node).supply
        cluster.ledger.offer(node.metadata.name, cpu, memory >> 20)
    for pod in cluster.pods:
        facts = request.facts(pod, None)
        mix.see(pod, facts)
        if facts.request is None and facts.node and pod.status.phase not in objects.FINISHED:
            cluster.ledger.use(facts.uid, facts.node, facts.cpu, facts.memory)
    cluster.ledger.learn(mix.mixture(cluster.ledger, reach))


def begin(source: Source, facts: PodFacts, policy: str) -> vitals.Reading | None:
    """Begins to read what GPUs do, if that decides where the pod goes."""
    return vitals.Reading(source) if gives_points(facts, policy) else None


def with_needs(placing: Placing, facts: PodFacts, pod: objects.Pod) -> PodFacts:
    """With what counts for the points of nodes."""
    if placing.points is None or not gives_points(facts, placing.policy):
        return facts
    from gpushare.core.facts.scoring import node_score

    return msgspec.structs.replace(facts, needs=node_score.needs(pod))
