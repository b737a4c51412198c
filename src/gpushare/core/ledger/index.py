"""What is free on every node, kept ready to be looked up: one dictionary per kind of request.

A call of a scheduler names thousands of nodes, so it reads these dictionaries and computes nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gpushare.core.facts.model import NodeFacts, Pin, Request, Unit
from gpushare.core.facts.policies import IMPOSSIBLE
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.order.gpu_order import GpuOrder

SUM_BITS = 32  # the free units of a whole node fit below that
NO_LIMIT = 1 << 50  # units; more than any container asks

Lane = tuple[Pin | None, Unit | None, bool]
"""Requests with the same lane may use the same nodes."""


class Order(NamedTuple):
    """Of nodes, for one request."""

    rows: Iterable[tuple[int, str]]  # keys and names, the best first; a node may be there several times
    key: Callable[[str], int | None]  # of a node; None: it is not in the order
    nodes: int  # about how many nodes are in there


class Lanes(NamedTuple):
    """Where a node is in the index, as long as it offers the same."""

    facts: NodeFacts
    largest: list[dict[str, int]]
    spots: list[dict[str, tuple[int, ...]]]


class Index:
    def __init__(self) -> None:
        self.special: set[str] = set()  # nodes whose answer depends on more than what is free
        self.promised: set[str] = set()  # those of them where something is nominated or kept
        self._largest: dict[Lane, dict[str, int]] = {}
        self._spots: dict[Lane, dict[str, tuple[int, ...]]] = {}
        self._orders: dict[tuple[Lane, bool], GpuOrder] = {}  # by lane, and whether the emptiest is first
        self._lanes: dict[str, Lanes] = {}  # by node
        self._limits: dict[str, int] = {}  # units that one container may ask, of the nodes that have such a limit
        self._lowest_limit = NO_LIMIT

    def largest(self, request: Request) -> Mapping[str, int]:
        """The largest free GPU of each node that may serve such a request of one share."""
        nodes, need = self._largest.get((request.pin, request.unit, request.by_mps), {}), request.shares[0].units
        if need <= self._lowest_limit:
            return nodes
        return {name: free for name, free in nodes.items() if self._limits.get(name, NO_LIMIT) >= need}

    def has_room(self, request: Request, node: str) -> bool:
        """Whether a GPU of a node has room for such a request of one share."""
        need = request.shares[0].units
        largest = self._largest.get((request.pin, request.unit, request.by_mps), {}).get(node, -1)
        return largest >= need and (need <= self._lowest_limit or self._limits.get(node, NO_LIMIT) >= need)

    def order(self, request: Request, *, emptiest_first: bool) -> Order:
        """For a request of one share."""
        lane = request.pin, request.unit, request.by_mps
        nodes, least = self._spots.get(lane, {}), request.shares[0].units << SUM_BITS
        order = self._orders.get((lane, emptiest_first))
        if order is None:
            order = self._orders[lane, emptiest_first] = GpuOrder(emptiest_first=emptiest_first)
        rows = order.rows(least, nodes)
        if request.shares[0].units > self._lowest_limit:
            rows = (row for row in rows if self._limits.get(row[1], NO_LIMIT) >= request.shares[0].units)

        def key(node: str) -> int | None:
            return order.key(nodes[node], least) if node in nodes and self.has_room(request, node) else None

        return Order(rows, key, len(nodes))

    def update(self, state: NodeState) -> None:
        """A node has changed."""
        name, room = state.name, state.room
        known = self._lanes.get(name)
        if known is None or room is None or known.facts is not room.facts:
            known = self._set_lanes(name, room.facts if room is not None else None)
        if room is not None and known is not None:
            largest = room.rising[-1]
            spots = (*[(free << SUM_BITS) + room.sum_free for free in room.rising], IMPOSSIBLE)
            for lane in known.largest:
                lane[name] = largest
            for lane_of_spots in known.spots:
                lane_of_spots[name] = spots
        for order in self._orders.values():
            order.touch(name)
        (self.special.add if state.depends_on_pod else self.special.discard)(name)
        (self.promised.add if state.promised else self.promised.discard)(name)

    def _set_lanes(self, name: str, facts: NodeFacts | None) -> Lanes | None:
        """Requests in which lanes may use the node."""
        for largest in self._largest.values():
            largest.pop(name, None)
        for ranked in self._spots.values():
            ranked.pop(name, None)
        self._set_limit(name, facts.limit if facts is not None else 0)
        healthy = facts is not None and any(gpu.healthy for gpu in facts.gpus)
        if facts is None or facts.blocked is not None or not healthy:
            self._lanes.pop(name, None)
            return None
        pin = Pin.DIRECT if facts.pin is Pin.DIRECT else Pin.PLUGIN
        whose = [False, True]  # requests of others than clients of MPS, and of clients
        if facts.only_mps:
            whose = [] if facts.mps_down else [True]
        lanes = [(pin, unit, by_mps) for unit in (None, facts.unit) for by_mps in whose]
        largest_of = [self._largest.setdefault(lane, {}) for lane in lanes]
        found = self._lanes[name] = Lanes(facts, largest_of, [self._spots.setdefault(lane, {}) for lane in lanes])
        return found

    def forget(self, name: str) -> None:
        """A node is gone."""
        self.special.discard(name)
        self.promised.discard(name)

    def _set_limit(self, name: str, limit: int) -> None:
        if limit == self._limits.get(name, 0):
            return
        if limit:
            self._limits[name] = limit
        else:
            del self._limits[name]
        self._lowest_limit = min(self._limits.values(), default=NO_LIMIT)
