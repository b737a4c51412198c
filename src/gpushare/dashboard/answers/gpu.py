"""One GPU: its row, and what it did over time.

Pure. The series come from whoever keeps them; pods of the past may be gone, so their names are in the series.
"""

from collections.abc import Sequence

import msgspec

from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.answers import gpus, node
from gpushare.dashboard.answers.body import Body, Number, names
from gpushare.dashboard.answers.gpus import GpuRow
from gpushare.view.snapshot import Snapshot

Figures = Sequence[int | None]
"""One for each time; None: unknown."""


class PodSeries(msgspec.Struct, frozen=True):
    """What a pod was given of a GPU, and used, over time."""

    namespace: str
    pod: str
    number: int
    granted: Figures
    used: Figures


class Series(msgspec.Struct, frozen=True):
    """What a GPU did. `begins`: the first time that is known at all. `source`: memory or prometheus."""

    times: Sequence[int]  # seconds since 1970
    total: Figures
    granted: Figures
    used: Figures
    util: Figures
    temp: Figures
    power: Figures
    shares: Sequence[PodSeries] = ()
    source: str = "memory"
    begins: int | None = None
    note: str = ""


class ShareSeries(Body):
    namespace: str | None
    pod: str | None
    number: int
    granted: Figures
    used: Figures


class GpuPage(Body):
    node: str
    gpu: GpuRow
    range: str
    times: Sequence[int]
    total: Figures
    granted: Figures
    used: Figures
    util: Figures
    temp: Figures
    power: Figures
    temp_limit: int | None
    power_limit: int | None
    shares: list[ShareSeries]
    source: str
    begins: int | None = msgspec.field(name="from")
    note: str = ""


def namespaces(cluster: Snapshot, name: str, series: Series) -> frozenset[str]:
    """Those of the pods on the node, and of those that were on the GPU."""
    return node.namespaces(cluster, name) | {one.namespace for one in series.shares}


def answer(
    cluster: Snapshot, name: str, index: int, range_: str, series: Series, number: Number, allowed: Allowed
) -> GpuPage | None:
    """None: there is no such GPU."""
    one = gpus.find(cluster, name)
    rows = gpus.rows(one, number, allowed) if one is not None else []
    row = next((row for row in rows if row.index == index), None)
    if row is None:
        return None
    return GpuPage(
        name,
        row,
        range_,
        series.times,
        series.total,
        series.granted,
        series.used,
        series.util,
        series.temp,
        series.power,
        row.temp_limit,
        row.power_limit,
        [_share(one, allowed) for one in series.shares],
        series.source,
        series.begins,
        series.note,
    )


def key(cluster: Snapshot, name: str, index: int) -> str | None:
    """What identifies a GPU of a node over time: its UUID, or its index where it has none; None: there is no such
    GPU."""
    facts = cluster.ledger.facts(name)
    return next((gpu.key for gpu in facts.gpus if gpu.index == index), None) if facts is not None else None


def _share(one: PodSeries, allowed: Allowed) -> ShareSeries:
    return ShareSeries(*names(one.namespace, one.pod, allowed), one.number, one.granted, one.used)
