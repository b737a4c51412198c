"""Where pods without GPUs go by policies that do not look at CPU: to the node with the least or the most CPU left.

The extender is never asked about such pods. In a replay they take CPU from those with GPUs, so where they go matters.
Pure.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from gpushare.core.ledger.supplies import Supplies
from gpushare.core.order.offer import Offer


class NodesByCpu:
    """Of equal nodes the first by name is the best."""

    def __init__(self, supplies: Supplies, names: Sequence[str]) -> None:
        self._supplies = supplies
        self._cpu = {name: supplies.left(name)[0] for name in names}
        self._rising = sorted([(cpu, name) for name, cpu in self._cpu.items()])
        self._falling = sorted([(-cpu, name) for name, cpu in self._cpu.items()])

    def changed(self, node: str) -> None:
        before, now = self._cpu[node], self._supplies.left(node)[0]
        if before != now:
            self._cpu[node] = now
            del self._rising[bisect_left(self._rising, (before, node))]
            del self._falling[bisect_left(self._falling, (-before, node))]
            insort(self._rising, (now, node))
            insort(self._falling, (-now, node))

    def first(self, offer: Offer, cpu: int, *, emptiest_first: bool) -> str | None:
        order = self._falling if emptiest_first else self._rising[bisect_left(self._rising, (cpu, "")) :]
        return next((name for _, name in order if name in offer), None)
