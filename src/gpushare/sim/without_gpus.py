"""Where pods without GPUs go: for each CPU and memory that is asked, the nodes that have it, in the policy's order.

The extender is never asked about such pods. In a replay they take CPU from those with GPUs, so where they go matters.
Pure.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.packing.model import Ask, Scorer
from gpushare.core.facts.policies import POLICIES
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.order.offer import Offer


class PodsWithoutGpus:
    def __init__(self, ledger: Ledger, policy: str, names: Sequence[str]) -> None:
        self._ledger, self._policy, self._names = ledger, policy, names
        self._orders: dict[Ask, _Order] = {}
        self._changes: list[str] = []  # nodes, in the order in which they changed
        self._nodes: dict[str, str] = {}  # by uid

    def changed(self, node: str) -> None:
        self._changes.append(node)

    def place(self, pod: PodFacts, offer: Offer) -> str | None:
        ask, scorer = Ask.of(pod), self._ledger.scorer(self._policy)
        order = self._orders.get(ask)
        if order is None or order.scorer is not scorer:
            order = self._orders[ask] = _Order(scorer, len(self._changes))
            changed: Sequence[str] = self._names
        else:
            changed = self._changes[order.seen :]
            order.seen = len(self._changes)
        for name in set(changed):
            order.put(name, self._key(ask, pod, name, scorer))
        node = next((name for _, name in order.nodes if name in offer), None)
        if node is not None:
            self._ledger.use(pod.uid, node, pod.cpu, pod.memory)
            self._nodes[pod.uid] = node
            self.changed(node)
        return node

    def end(self, uid: str) -> str:
        node = self._nodes.pop(uid)
        self._ledger.use_no_longer(uid)
        self.changed(node)
        return node

    def _key(self, ask: Ask, pod: PodFacts, node: str, scorer: Scorer | None) -> int | None:
        view = self._ledger.view(node, pod)
        if view is None or view.cpu < ask.cpu or view.memory < ask.memory:
            return None
        if scorer is not None:
            return scorer.planned(ask, view, view.free)
        # A policy that does not look at CPU: as it does with GPUs, the emptiest or the fullest node.
        return -view.cpu if POLICIES[self._policy].emptiest_first else view.cpu


class _Order:
    """Nodes with room for one ask, the best first."""

    def __init__(self, scorer: Scorer | None, seen: int) -> None:
        self.scorer, self.seen = scorer, seen  # how many changes it knows
        self.nodes: list[tuple[int, str]] = []
        self._keys: dict[str, int] = {}

    def put(self, node: str, key: int | None) -> None:
        before = self._keys.pop(node, None)
        if before is not None:
            del self.nodes[bisect_left(self.nodes, (before, node))]
        if key is not None:
            self._keys[node] = key
            insort(self.nodes, (key, node))
