"""Which GPU models a pod may use, worked out from its rules and the labels and taints of the nodes.

A trace has no labels. What selectors, affinity and taints come to is the models of the nodes that they leave. A pod
that is kept to some nodes for another reason (a zone, say) may use all nodes with GPUs of these models in a replay.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpushare.core.facts import intree, node_rules, objects
from gpushare.core.facts.model import Rules
from gpushare.sim.recording.machines import Machine

_PASSES = "node.kubernetes.io/"  # how taints begin that tell a state of the node: cordoned, not ready, out of disk


class Models:
    def __init__(self, nodes: Sequence[intree.Node], machines: Mapping[str, Machine]) -> None:
        self._machines = machines
        self._rules = [_lasting(node) for node in nodes if node.metadata.name in machines]
        self._all = _of(machines.values())
        self._known: dict[Rules | None, frozenset[str]] = {}

    def allowed(self, pod: objects.Pod) -> tuple[str, ...] | None:
        """The models, by name; empty: any. None: no node admits the pod."""
        rules = node_rules.read(pod)
        if rules not in self._known:
            self._known[rules] = _of(self._machines[node.name] for node in self._rules if intree.admits(rules, node))
        models = self._known[rules]
        there = self._machines.get(pod.spec.node_name or "")
        if there is not None:
            models |= _of([there])  # labels may have changed since the pod was placed
        if not models:
            return None
        return () if models == self._all or "" in models else tuple(sorted(models))


def _of(machines: Iterable[Machine]) -> frozenset[str]:
    return frozenset([gpu.model for machine in machines for gpu in machine.node.gpus])


def _lasting(node: intree.Node) -> intree.NodeRules:
    """The node's rules without what passes."""
    rules = intree.node_rules(node)
    taints = tuple([taint for taint in rules.taints if not taint.key.startswith(_PASSES)])
    return msgspec.structs.replace(rules, taints=taints, unschedulable=False)
