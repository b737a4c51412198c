"""What is free on every node, kept ready to be looked up: one dictionary per kind of request.

A call of a scheduler names thousands of nodes, so it reads these dictionaries and computes nothing.
"""

from collections.abc import Mapping
from typing import TypeVar

from gpushare.core.facts.model import Pin, Request, Unit
from gpushare.core.facts.policies import IMPOSSIBLE
from gpushare.core.ledger.node_state import NodeState

SUM_BITS = 32  # the free units of a whole node fit below that
NO_LIMIT = 1 << 50  # units; more than any container asks

T = TypeVar("T")

Lane = tuple[Pin | None, Unit | None, bool]
"""Requests with the same lane may use the same nodes."""


class Index:
    def __init__(self) -> None:
        self.special: set[str] = set()  # nodes whose answer depends on more than what is free
        self._largest: dict[Lane, dict[str, int]] = {}
        self._spots: dict[Lane, dict[str, tuple[int, ...]]] = {}
        self._limits: dict[str, int] = {}  # units that one container may ask, of the nodes that have such a limit
        self._lowest_limit = NO_LIMIT

    def largest(self, request: Request) -> Mapping[str, int]:
        """The largest free GPU of each node that may serve such a request of one share."""
        return self._within_limit(request, self._largest.get((request.pin, request.unit, request.by_mps), {}))

    def spots(self, request: Request) -> Mapping[str, tuple[int, ...]]:
        """Of each node that may serve such a request of one share, one number per healthy GPU, rising: the free units
        of the GPU, then (in the low SUM_BITS) those of its node. IMPOSSIBLE comes last."""
        return self._within_limit(request, self._spots.get((request.pin, request.unit, request.by_mps), {}))

    def _within_limit(self, request: Request, nodes: dict[str, T]) -> Mapping[str, T]:
        need = request.shares[0].units
        if need <= self._lowest_limit:
            return nodes
        return {name: entry for name, entry in nodes.items() if self._limits.get(name, NO_LIMIT) >= need}

    def update(self, state: NodeState) -> None:
        """A node has changed."""
        name, room = state.name, state.room
        for largest in self._largest.values():
            largest.pop(name, None)
        for ranked in self._spots.values():
            ranked.pop(name, None)
        if room is not None and room.rising and room.facts.blocked is None:
            spots = (*[(free << SUM_BITS) + room.sum_free for free in room.rising], IMPOSSIBLE)
            pin = Pin.DIRECT if room.facts.pin is Pin.DIRECT else Pin.PLUGIN
            whose = [False, True]  # requests of others than clients of MPS, and of clients
            if room.facts.only_mps:
                whose = [] if room.facts.mps_down else [True]
            for lane in [(pin, unit, by_mps) for unit in (None, room.facts.unit) for by_mps in whose]:
                self._largest.setdefault(lane, {})[name] = room.rising[-1]
                self._spots.setdefault(lane, {})[name] = spots
        self._set_limit(name, room.facts.limit if room is not None else 0)
        if state.depends_on_pod:
            self.special.add(name)
        else:
            self.special.discard(name)

    def _set_limit(self, name: str, limit: int) -> None:
        if limit == self._limits.get(name, 0):
            return
        if limit:
            self._limits[name] = limit
        else:
            del self._limits[name]
        self._lowest_limit = min(self._limits.values(), default=NO_LIMIT)
