"""All GPUs of all nodes in one order, by what they have free: serves requests of one share, whatever their size.

A GPU is a number: its free units, and in the low bits those of its node (`core/ledger/index.py`). A request begins at
the first GPU that has as much free as it asks for: fullest first that is its order, each node where it appears first.
With the emptiest first the largest GPU of each node counts alone.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from itertools import islice

MANY = 64  # to put so many nodes at once, sorting anew is faster

Spots = tuple[int, ...]
"""The numbers of the GPUs of a node, rising, and then one that is larger than all."""


class GpuOrder:
    def __init__(self, *, emptiest_first: bool) -> None:
        self._emptiest_first = emptiest_first
        self._rows: list[tuple[int, str]] = []
        self._spots: dict[str, Spots] = {}  # of the nodes in the order, as they are in there
        self._changed: dict[str, None] = {}
        self._whole = False  # whether anything was ever asked

    def touch(self, node: str) -> None:
        """A node changed."""
        if self._whole:
            self._changed[node] = None

    def rows(self, least: int, nodes: Mapping[str, Spots]) -> Iterable[tuple[int, str]]:
        """The best first, of those whose number is not less. `nodes`: all, as they are now."""
        if not self._whole or len(self._changed) > MANY:
            self._spots = dict(nodes)
            self._rows = sorted([(key, node) for node, spots in nodes.items() for key in self._keys(spots)])
            self._whole = True
        else:
            for node in self._changed:
                self._put(node, nodes.get(node, ()))
        self._changed.clear()
        if self._emptiest_first:
            return islice(self._rows, bisect_left(self._rows, (1 - least,)))
        return map(self._rows.__getitem__, range(bisect_left(self._rows, (least,)), len(self._rows)))

    def key(self, spots: Spots, least: int) -> int | None:
        """Of a node in that order; None: it has no room."""
        if self._emptiest_first:
            return -spots[-2] if spots[-2] >= least else None
        first = bisect_left(spots, least)
        return spots[first] if first < len(spots) - 1 else None

    def _put(self, node: str, spots: Spots) -> None:
        before = self._spots.pop(node, ())
        if spots:
            self._spots[node] = spots
        if spots != before:
            for key in self._keys(before):
                del self._rows[bisect_left(self._rows, (key, node))]
            for key in self._keys(spots):
                insort(self._rows, (key, node))

    def _keys(self, spots: Spots) -> Iterable[int]:
        """GPUs with equal numbers once."""
        if not spots:
            return ()
        return (-spots[-2],) if self._emptiest_first else set(spots[:-1])
