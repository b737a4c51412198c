"""The nodes of the cluster as a ledger without pods: what they could give if nothing ran there.

The sink of a watch. It answers whether a new pod could ever run here. Nodes that offer the same give
the same answer, so only one of each shape is kept: thousands of nodes are a handful.
"""

import collections
import itertools
from collections.abc import Set

import msgspec

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import objects
from gpushare.core.facts.model import NodeFacts
from gpushare.core.ledger.ledger import Ledger


class Nodes:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self._shapes: dict[str, str] = {}  # by node: the name under which its shape is in the ledger
        self._known: dict[NodeFacts, str] = {}  # by shape: that name
        self._counts: collections.Counter[str] = collections.Counter()
        self._numbers = itertools.count()

    def upsert(self, item: objects.Node) -> None:
        name, facts = item.metadata.name, node_gpus.read(item, frozenset())
        shape = None if facts is None else self._like(facts)
        if self._shapes.get(name) == shape:
            return  # a heartbeat
        self._forget(name)
        if shape is not None:
            self._shapes[name] = shape
            self._counts[shape] += 1

    def remove(self, item: objects.Node) -> None:
        self._forget(item.metadata.name)

    def relisted(self, kept: Set[str]) -> None:
        for name in self._shapes.keys() - kept:
            self._forget(name)

    def _like(self, facts: NodeFacts) -> str:
        """The name of its shape, which is in the ledger from now on."""
        gpus = [msgspec.structs.replace(gpu, uuid=str(i), index=i, model="") for i, gpu in enumerate(facts.gpus)]
        shape = msgspec.structs.replace(facts, name="", gpus=tuple(gpus))
        if shape not in self._known:
            self._known[shape] = f"like-{next(self._numbers)}"
            self.ledger.set_node(msgspec.structs.replace(shape, name=self._known[shape]))
        return self._known[shape]

    def _forget(self, name: str) -> None:
        shape = self._shapes.pop(name, None)
        if shape is None:
            return
        self._counts[shape] -= 1
        if not self._counts[shape]:
            del self._counts[shape]
            self._known = {facts: known for facts, known in self._known.items() if known != shape}
            self.ledger.remove_node(shape)
