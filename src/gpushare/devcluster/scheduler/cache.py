"""The nodes that the stand-in scheduler knows, and what is taken on each by bound and by assumed pods.

A pod is assumed on its node as soon as the node is chosen, so that the next pod is not promised the same CPU. It is
dropped if the binding fails.
"""

from collections import Counter
from collections.abc import Mapping

from gpushare.core.facts import intree
from gpushare.core.facts.intree import Node, Pod


class Cache:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[str, Counter[str]]] = {}  # by uid: the node, and what is taken there
        self._taken: dict[str, Counter[str]] = {}

    def taken(self, node: str) -> Mapping[str, int]:
        """As `intree.obstacles` takes it. A node that is not known may have pods, too."""
        return self._taken.get(node, {})

    def put(self, pod: Pod, node: str) -> None:
        """The pod is on this node, or assumed there, and no longer on another one."""
        uid, amounts = pod.metadata.uid, Counter(intree.totals([pod]))
        self.drop(uid)
        self.pods[uid] = node, amounts
        self._taken.setdefault(node, Counter()).update(amounts)

    def drop(self, uid: str) -> bool:
        """The pod is gone, or its binding failed. False if it was not known."""
        node, amounts = self.pods.pop(uid, ("", Counter()))
        if not node:
            return False
        self._taken[node].subtract(amounts)
        return True
