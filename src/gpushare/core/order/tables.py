"""What is kept for requests that people really make, by namespace, so that no tenant pushes out another's.

A table has an entry for each node. The number of all entries is bounded, and the namespace with the most tables loses
one first: the one that was not asked for longest, but if possible not one that a waiting pod has.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, Protocol, TypeVar

ENTRIES = 1_000_000  # a few hundred MB
FEWEST, MOST = 32, 1_024  # tables that are kept in all, however many nodes there are


class Table(Protocol):
    @property
    def wanted(self) -> bool: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Table)


class Tables(Generic[K, V]):
    def __init__(self, entries: int = ENTRIES) -> None:
        self._entries = entries
        self._kept: dict[str, OrderedDict[K, V]] = {}
        self._count = 0

    def get(self, namespace: str, key: K) -> V | None:
        kept = self._kept.get(namespace)
        table = kept.get(key) if kept is not None else None
        if kept is not None and table is not None:
            kept.move_to_end(key)
        return table

    def put(self, namespace: str, key: K, table: V, nodes: int) -> V:
        """A new one, in a cluster of so many nodes."""
        self._kept.setdefault(namespace, OrderedDict())[key] = table
        self._count += 1
        while self._count > min(max(self._entries // max(nodes, 1), FEWEST), MOST):
            self._drop_one(key)
        return table

    def __iter__(self) -> Iterator[V]:
        return (table for kept in self._kept.values() for table in kept.values())

    def items(self) -> Iterator[tuple[str, K, V]]:
        """With the namespace and the key of each."""
        return ((namespace, key, table) for namespace, kept in self._kept.items() for key, table in kept.items())

    def replace(self, namespace: str, key: K, table: V) -> None:
        """Instead of the one that is there, if it still is."""
        if key in self._kept.get(namespace, ()):
            self._kept[namespace][key] = table

    def _drop_one(self, new: K) -> None:
        largest = max(self._kept, key=lambda namespace: len(self._kept[namespace]))
        kept = self._kept[largest]
        unwanted = next((key for key, table in kept.items() if not table.wanted and key != new), None)
        del kept[unwanted if unwanted is not None else next(iter(kept))]
        self._count -= 1
        if not kept:
            del self._kept[largest]
