"""What was given out and used over time, how much of what is free can be used, and who holds GPU memory that idles.

Pure. The columns, and the most that each pod has used, come from whoever keeps them. A pod whose use is not known is
not called idle.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gpushare.core.explain import figures
from gpushare.core.facts.model import PodFacts
from gpushare.core.steps import Steps, finish
from gpushare.dashboard.allowed import Allowed, is_allowed
from gpushare.dashboard.answers.body import Body, mib
from gpushare.view.snapshot import Snapshot

MOST_IDLE = 100  # pods, and namespaces

Columns = Mapping[str, Any]
"""By name: `times`, figures of the cluster, `waiting` by code, `source`, `from` and `note`."""
Figures = Sequence[float | None]
"""One for each time; None: unknown."""
Peaks = Mapping[str, int | None]
"""The most that a pod has used of all its GPUs together, in MiB, by uid; None: unknown."""


class SizeRow(Body):
    """`unusable`: the part of what is free that pods of this size cannot use, 0 to 1; None: nothing is free. `mib` is
    None for a whole GPU."""

    size: str
    mib: int | None
    fits: int
    unusable: float | None


class IdlePod(Body):
    namespace: str
    pod: str
    granted: int
    peak: int
    idle: int


class IdleNamespace(Body):
    """Of its pods whose use is known."""

    namespace: str
    granted: int
    idle: int


class HistoryPage(Body):
    times: Sequence[float]
    total: Figures
    granted: Figures
    used: Figures
    waiting: Mapping[str, Figures]
    free: int  # MiB that may be given out
    sizes: list[SizeRow]
    idle: list[IdlePod]  # of those that the reader may see, like the next
    idle_namespaces: list[IdleNamespace]
    source: str
    begins: float | None = msgspec.field(name="from")
    note: str = ""


def namespaces(cluster: Snapshot, peaks: Peaks) -> frozenset[str]:
    """Those of the pods whose use is known."""
    return frozenset(pod.namespace for pod in cluster.asking if peaks.get(pod.uid) is not None)


def answer(cluster: Snapshot, columns: Columns, peaks: Peaks, allowed: Allowed) -> HistoryPage:
    return finish(answering(cluster, columns, peaks, allowed))


def answering(cluster: Snapshot, columns: Columns, peaks: Peaks, allowed: Allowed) -> Steps[HistoryPage]:
    """The same in short steps: with many nodes it takes long."""
    waiting = [pod for pod in cluster.asking if not (pod.node or pod.finished or pod.terminating)]
    found = yield from figures.counting(cluster.ledger, waiting)
    idle = sorted(_idle(cluster, peaks, allowed), key=lambda one: (-one.idle, one.namespace, one.pod))
    yield
    return HistoryPage(
        times=columns["times"],
        total=columns["total"],
        granted=columns["granted"],
        used=columns["used"],
        waiting=columns["waiting"],
        free=found.free >> 20,
        sizes=[_size(name, size, found.bytes.get(name)) for name, size in found.sizes.items()],
        idle=idle[:MOST_IDLE],
        idle_namespaces=_by_namespace(idle)[:MOST_IDLE],
        source=columns["source"],
        begins=columns["from"],
        note=columns["note"],
    )


def _size(name: str, size: figures.Size, of_one: int | None) -> SizeRow:
    return SizeRow(name, None if of_one is None else of_one >> 20, size.fitting, size.unusable)


def _idle(cluster: Snapshot, peaks: Peaks, allowed: Allowed) -> Iterator[IdlePod]:
    for pod in cluster.asking:
        peak = peaks.get(pod.uid)
        if peak is None or not is_allowed(allowed, pod.namespace):
            continue
        granted = _granted(cluster, pod)
        if granted > peak:
            yield IdlePod(pod.namespace, pod.name, granted, peak, granted - peak)


def _granted(cluster: Snapshot, pod: PodFacts) -> int:
    """MiB that a pod holds on GPUs that are known."""
    holding, facts = cluster.ledger.holding(pod.uid), cluster.ledger.facts(pod.node)
    if holding is None or facts is None:
        return 0
    return sum(charge.units for charge in holding.charges or ()) * mib(facts.unit)


def _by_namespace(pods: Sequence[IdlePod]) -> list[IdleNamespace]:
    sums: dict[str, IdleNamespace] = {}
    for pod in pods:
        one = sums.setdefault(pod.namespace, IdleNamespace(pod.namespace, 0, 0))
        one.granted, one.idle = one.granted + pod.granted, one.idle + pod.idle
    return sorted(sums.values(), key=lambda one: (-one.idle, one.namespace))
