"""What is known of each GPU of a node when points are given: what was measured, and what the ledger knows.

A sample is always a little old. Pods that were placed after it are added to it, as if each used all that it was given:
so the next pod sees them at once, although figures come later.
"""

from collections.abc import Iterable, Mapping

from gpushare.core.facts import units
from gpushare.core.facts.model import Data, NodeFacts
from gpushare.core.facts.scoring.load import GpuLoad
from gpushare.core.facts.vitals import GpuVitals
from gpushare.core.ledger.holding import Holding

MIB = 1 << 20
PODS = 10  # a GPU with so many pods is full, if its node sells no MPS slots


class Measured(Data, frozen=True):
    """What a node said of its GPUs, and when that was."""

    at: float  # in the time of the ledger
    gpus: Mapping[str, GpuVitals]  # by uuid
    attributed: bool = True  # what containers use is known

    def over_users(self, uuid: str) -> tuple[str, ...]:
        """Uids of pods that use more of a GPU than they asked for."""
        found = self.gpus.get(uuid)
        return found.over_users if found is not None else ()


class _On:
    """What pods hold on one GPU."""

    __slots__ = ("fresh", "granted", "pods")

    def __init__(self) -> None:
        self.pods = self.granted = self.fresh = 0  # fresh: units of pods placed after the last sample


def loads(facts: NodeFacts, holdings: Iterable[Holding], measured: Measured | None) -> tuple[GpuLoad, ...]:
    """By position of the GPU."""
    on = [_On() for _ in facts.gpus]
    since = measured.at if measured is not None else 0.0
    for holding in holdings:
        for gpu, amount, _ in holding.charges or ():
            on[gpu].pods += 1
            on[gpu].granted += amount
            if holding.since > since:
                on[gpu].fresh += amount
    mib, nothing = units.BYTES_IN[facts.unit] // MIB, GpuVitals()
    figures = measured.gpus if measured is not None else {}
    attributed = measured is not None and measured.attributed
    return tuple(
        [
            _load(
                gpu.total, mib, facts.slots or PODS, there, figures.get(gpu.uuid, nothing), bool(gpu.links), attributed
            )
            for gpu, there in zip(facts.gpus, on, strict=True)
        ]
    )


def _load(total: int, mib: int, most_pods: int, on: _On, figures: GpuVitals, linked: bool, attributed: bool) -> GpuLoad:
    known = figures.used_mib is not None and attributed
    utilization: float | None = figures.utilization
    if utilization is not None and on.fresh:
        utilization = min(utilization + 100 * on.fresh / max(total, 1), 100.0)
    return GpuLoad(
        total * mib,
        on.granted * mib,
        on.pods,
        most_pods,
        figures.used_mib + on.fresh * mib if figures.used_mib is not None else None,
        utilization,
        figures.temperature,
        figures.temperature_limit,
        figures.power_watts,
        figures.power_limit_watts,
        bool(figures.over_users) if known else None,
        linked,
    )
