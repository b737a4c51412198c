"""Which nodes a pod may go to, GPUs aside: by labels, taints, cordons, node selectors and node affinity.

kube-scheduler checks the same before it asks, and offers no other nodes. It is known here too, because wake-ups, kept
GPUs and explanations are not answers to a question of kube-scheduler.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gpushare.core.facts import intree
from gpushare.core.facts.intree import NodeRules
from gpushare.core.facts.model import Needs, PodFacts, Rules
from gpushare.core.facts.scoring import node_score
from gpushare.core.facts.scoring.load import Terms
from gpushare.core.facts.scoring.node_score import NodePoints

MOST_ALLOWED = 64  # rules of pods for which the nodes are remembered, and needs of pods for which their points are
MOST_TEXTS = 100_000  # labels kept once; then sharing begins anew, so that what is gone is let go


class Reach(NamedTuple):
    """Which nodes are open to a pod. Where one node is meant, ask for that one: to list them costs a look at each."""

    allowed: Callable[[PodFacts], Collection[str] | None] = lambda pod: None  # None: all
    open_to: Callable[[PodFacts, str], bool] = lambda pod, node: True
    reserved: Callable[[], Collection[str]] = tuple  # nodes that an admin reserved, also those without GPUs


ANYWHERE = Reach()


class NodesByRules:
    """The rules of all nodes. Equal rules of pods get one answer until a node changes in that."""

    def __init__(self) -> None:
        self._rules: dict[str, NodeRules] = {}
        self._allowed: dict[Rules | None, frozenset[str] | None] = {}
        self._texts: dict[str, str] = {}
        self._scores: dict[Needs, dict[str, int]] = {}
        self._reserved: set[str] = set()

    def set_node(self, name: str, rules: NodeRules) -> None:
        if self._rules.get(name) == rules:
            return
        if len(self._texts) >= MOST_TEXTS:
            self._texts.clear()
        # Thousands of nodes have the same labels: each text is kept once.
        once = self._texts.setdefault
        labels = {once(key, key): once(value, value) for key, value in rules.labels.items()}
        self._rules[name] = msgspec.structs.replace(rules, labels=labels)
        (self._reserved.add if rules.reserved else self._reserved.discard)(name)
        self._changed(name)

    def remove_node(self, name: str) -> None:
        if self._rules.pop(name, None) is not None:
            self._reserved.discard(name)
            self._changed(name)

    def _changed(self, name: str) -> None:
        self._allowed.clear()
        for scores in self._scores.values():
            scores.pop(name, None)

    def reserved(self) -> Collection[str]:
        """The nodes that an admin reserved: few."""
        return self._reserved

    def open_to(self, pod: PodFacts, node: str) -> bool:
        """Whether a pod may go to a node, by its rules and the node's. No pod may go to an unknown node."""
        rules = self._rules.get(node)
        return rules is not None and intree.admits(pod.rules, rules)

    def allowed(self, pod: PodFacts) -> Collection[str] | None:
        """The nodes that are open to a pod; None: all of them."""
        if pod.rules not in self._allowed:
            if len(self._allowed) >= MOST_ALLOWED:
                del self._allowed[next(iter(self._allowed))]
            nodes = frozenset(name for name, rules in self._rules.items() if intree.admits(pod.rules, rules))
            self._allowed[pod.rules] = nodes if len(nodes) < len(self._rules) else None
        return self._allowed[pod.rules]

    @property
    def points(self) -> NodePoints:
        """The points of nodes themselves, GPUs aside."""
        return NodePoints(self._points_of, self._terms)

    def _points_of(self, needs: Needs, names: Sequence[str], looks: int) -> Mapping[str, int]:
        """Kept until a node changes. What is not known yet costs looks: thousands of nodes, and rules that may be long,
        would stop everything. The next call goes on."""
        scores = self._scores.get(needs)
        if scores is None:
            if len(self._scores) >= MOST_ALLOWED:
                del self._scores[next(iter(self._scores))]
            scores = self._scores[needs] = {}
        new = [name for name in names if name not in scores and name in self._rules]
        for name in new[: max(looks // node_score.looks(needs), 1)] if new else ():
            scores[name] = sum([points for _, points in node_score.terms(needs, self._rules[name])])
        return scores

    def _terms(self, needs: Needs, node: str) -> Terms:
        """Nothing if the node is unknown."""
        rules = self._rules.get(node)
        return node_score.terms(needs, rules) if rules is not None else ()
