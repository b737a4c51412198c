"""Nodes in one order: by their key, the smallest first, then by name.

Whoever asks looks first at the nodes that are `open`, because they changed since: it puts their new keys. Then it walks
from the best.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from gpushare.core.order.changes import Changes

MANY = 64  # to put so many at once, sorting anew is faster


class Ranked:
    """`by` is what all keys depend on besides the node. If that is another, all are worked out again. `example`: a
    request that has this order, so that it can be worked out before the next one asks."""

    __slots__ = ("_rows", "by", "example", "keys", "open", "seen")

    wanted = False  # by a waiting pod: it only has to be asked again

    def __init__(self) -> None:
        self.by: object = None
        self.example: object = None
        self.keys: dict[str, int] = {}  # of the nodes that are in the order
        self.open: dict[str, None] = {}
        self.seen = -1
        self._rows: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def renew(self, changes: Changes, nodes: Mapping[str, object], by: object) -> None:
        """What changed is open."""
        changed = changes.since(self.seen) if self.by is by else None
        if changed is None:
            self.by = by
            self.keys.clear()
            self._rows.clear()
            self.open = dict.fromkeys(nodes)
        else:
            for node in changed:
                if node in nodes:
                    self.open[node] = None
                else:
                    self.open.pop(node, None)
                    self._take(node)
        self.seen = changes.count

    def put(self, looked_at: Mapping[str, int | None]) -> None:
        """Nodes have these keys now; None: such a node is not in the order."""
        if len(looked_at) > MANY:
            for node, key in looked_at.items():
                del self.open[node]
                if key is not None:
                    self.keys[node] = key
                elif node in self.keys:
                    del self.keys[node]
            self._rows = sorted([(key, node) for node, key in self.keys.items()])
            return
        for node, key in looked_at.items():
            del self.open[node]
            before = self.keys.get(node)
            if before != key:
                self._take(node)
                if key is not None:
                    self.keys[node] = key
                    insort(self._rows, (key, node))

    def _take(self, node: str) -> None:
        key = self.keys.pop(node, None)
        if key is not None:
            del self._rows[bisect_left(self._rows, (key, node))]

    def rows(self) -> Iterable[tuple[int, str]]:
        """Keys and names, the best first. What is open is left out."""
        if not self.open:
            return self._rows
        return self._closed()

    def _closed(self) -> Iterator[tuple[int, str]]:
        is_open = self.open
        return (row for row in self._rows if row[1] not in is_open)

    def key(self, node: str) -> int | None:
        return self.keys.get(node) if node not in self.open else None
