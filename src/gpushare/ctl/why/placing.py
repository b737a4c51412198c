"""By which policy `why` works out a place, and what that policy needs to know besides the ledger.

A policy with points looks at what GPUs do: that is read from GPUNodes, and only then. What an admin says in policy
ConfigMaps is not read here; a running extender knows it (`--extender`).
"""

from typing import NamedTuple

import msgspec

from gpushare.core.facts import intree, objects
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.facts.policies import DEFAULT, POLICIES
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.view import vitals
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Source


class Placing(NamedTuple):
    """`policy` is for pods that name none."""

    policy: str = DEFAULT
    points: NodePoints | None = None

    def named(self, request: Request) -> str:
        return request.policy or self.policy


BY_DEFAULT = Placing()


def gives_points(facts: PodFacts, policy: str) -> bool:
    """Whether its place is chosen by points."""
    request = facts.request
    return isinstance(request, Request) and POLICIES[request.policy or policy or DEFAULT].score is not None


def prepared(cluster: Snapshot, reading: vitals.Reading | None, policy: str) -> Placing:
    """`reading`: of all GPUNodes, if a policy with points is meant."""
    if reading is None:
        return Placing(policy or DEFAULT)
    from gpushare.core.scheduling.reach import NodesByRules  # commands must start at once

    vitals.measure(cluster.ledger, reading.found(), cluster.now)
    nodes = NodesByRules()
    for node in cluster.nodes:
        nodes.set_node(node.metadata.name, intree.node_rules(node))
    return Placing(policy or DEFAULT, nodes.points)


def begin(source: Source, facts: PodFacts, policy: str) -> vitals.Reading | None:
    """Begins to read what GPUs do, if that decides where the pod goes."""
    return vitals.Reading(source) if gives_points(facts, policy) else None


def with_needs(placing: Placing, facts: PodFacts, pod: objects.Pod) -> PodFacts:
    """With what counts for the points of nodes."""
    if placing.points is None or not gives_points(facts, placing.policy):
        return facts
    from gpushare.core.facts.scoring import node_score

    return msgspec.structs.replace(facts, needs=node_score.needs(pod))
