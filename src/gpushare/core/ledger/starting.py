"""Which amounts kubelet will still ask the device plugin for, because their containers have not started yet.

Pure. The device plugin learns from kubelet an amount and no name. So two pods whose amounts could be confused must not
start at the same time: the same amount over another number of GPUs, and equal init containers.
"""

from collections.abc import Iterable

from gpushare.core.facts.model import Kind, Request, Role
from gpushare.core.ledger.holding import Holding, shares, waits_for_kubelet
from gpushare.core.placement.cost import Budget


class Starting:
    """The pods of one node whose containers have not got their GPUs yet, by what they ask."""

    __slots__ = ("_by_init", "_by_units")

    def __init__(self, holdings: Iterable[Holding], budget: Budget) -> None:
        self._by_units: dict[int, dict[int, set[str]]] = {}  # units, number of GPUs: uids
        self._by_init: dict[tuple[Kind, int, int], set[str]] = {}
        for holding in holdings:
            asked = shares(holding.pod) if waits_for_kubelet(holding.pod) else ()
            budget.left -= 1 + len(asked)
            for share in asked:
                self._by_units.setdefault(share.units, {}).setdefault(share.gpus, set()).add(holding.pod.uid)
                if share.role is Role.INIT:
                    self._by_init.setdefault(share.amount, set()).add(holding.pod.uid)

    def could_be_confused(self, request: Request, uid: str) -> bool:
        """Whether kubelet's question for this pod could be taken for that of another."""
        if any(self._by_init.get(amount, set()) - {uid} for amount in init_amounts(request)):
            return True
        for units, gpus in {(share.units, share.gpus) for share in request.shares if share.units}:
            for theirs, uids in self._by_units.get(units, {}).items():
                if theirs != gpus and uids - {uid}:
                    return True
        return False


def init_amounts(request: Request) -> set[tuple[Kind, int, int]]:
    return {share.amount for share in request.shares if share.role is Role.INIT}
