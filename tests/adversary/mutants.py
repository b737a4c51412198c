"""Each mend taken out again, by what it did: so that a test can show that the tester would find its loss.

By point, names of the project's code and what stands there instead. The names are text: a mend that is renamed makes
`test_mutants` fail with the name that is missing, and is then looked up anew.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

ENDLESS = 1 << 60


def _everywhere(*_: object) -> None:
    return None


async def _believed(_: object) -> None:
    return None


def _never(*_: object) -> bool:
    return False


def _always(*_: object) -> bool:
    return True


def _units_only(taken: Any, charges: Any, sign: int = 1) -> None:
    for gpu, units, _ in charges:
        taken.units[gpu] += sign * units


def _nodes_unit(_: object, facts: Any) -> Any:
    return facts.unit


TAKEN_OUT: dict[str, dict[str, object]] = {
    # Searches have no limit, neither one by one nor together.
    "1": {
        "gpushare.core.placement.cost.SEARCH_LOOKS": ENDLESS,
        "gpushare.core.placement.cost.CALL_LOOKS": ENDLESS,
        "gpushare.core.scheduling.life.CALL_LOOKS": ENDLESS,
        "gpushare.extender.verbs.CALL_LOOKS": ENDLESS,
        "gpushare.extender.housekeeping.CALL_LOOKS": ENDLESS,
    },
    # What a pod was given counts in the node's unit of today.
    "2": {"gpushare.core.annotations.pod_gpus.counted_in": _nodes_unit},
    # A watch is believed whatever the cluster's revision; a pod that was seen bound stays bound.
    "3": {
        "gpushare.kube.reflector.Reflector._compare": _believed,
        "gpushare.extender.watches.Pods._notice_if_unbound": _everywhere,
    },
    # Bound by hand it counts on every GPU. What an owner writes on a running pod: see `points`.
    "4": {"gpushare.core.annotations.pod_gpus.sees_nothing": _never},
    # Only memory is counted, not MPS slots.
    "5": {"gpushare.core.placement.room.Taken.add": _units_only},
    # Nobody knows what keeps a pod off a node, and a woken pod has long to come.
    "8": {
        "gpushare.core.scheduling.reach.NodesByRules.open_to": _always,
        "gpushare.core.scheduling.wakeups.WakeUps._kept": _everywhere,
        "gpushare.core.scheduling.wakeups.OFFER_SECONDS": 12.0,
    },
    "9": {"gpushare.core.scheduling.reach.NodesByRules.allowed": _everywhere},
}


@contextmanager
def without(point: str) -> Iterator[None]:
    with ExitStack() as stack:
        for name, instead in TAKEN_OUT[point].items():
            stack.enter_context(mock.patch(name, instead))
        yield
