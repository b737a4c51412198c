"""What the stand-in scheduler knows of nodes, and what is taken on each: bound pods, and those assumed to be soon.

Filled by `sinks` from the watches; `scheduler` assumes a pod on its node as soon as it was chosen, so that the next
pod is not promised the same CPU, and forgets it if the binding fails. `placing` reads it.
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
        """As `intree.obstacles` wants it. Nodes that are not known may have pods, too."""
        return self._taken.get(node, {})

    def put(self, pod: Pod, node: str) -> None:
        """The pod is on this node, or assumed to be; wherever it was thought to be, it is not."""
        uid, amounts = pod.metadata.uid, Counter(intree.totals([pod]))
        self.drop(uid)
        self.pods[uid] = node, amounts
        self._taken.setdefault(node, Counter()).update(amounts)

    def drop(self, uid: str) -> bool:
        """It is not there any more, or was never bound. False: nothing was known of it."""
        node, amounts = self.pods.pop(uid, ("", Counter()))
        if not node:
            return False
        self._taken[node].subtract(amounts)
        return True
