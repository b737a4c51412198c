"""One GPU: its row, and what it did over time.

Pure. The columns come from whoever keeps them, and are sent as they are. Pods of the past may be gone, so their names
are in the columns: those that the reader may not see are taken out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.answers import gpus, node
from gpushare.dashboard.answers.body import Body, Number, names
from gpushare.dashboard.answers.gpus import GpuRow, OverFor
from gpushare.view.snapshot import Snapshot

Columns = Mapping[str, Any]
"""By name: `times`, figures of the GPU, `shares` with namespace, pod and figures each, `source`, `from` and `note`."""
Figures = Sequence[float | None]
"""One for each time; None: unknown."""


class ShareSeries(Body):
    namespace: str | None
    pod: str | None
    number: int | None  # None: it is gone
    granted: Figures
    used: Figures


class GpuPage(Body):
    node: str
    gpu: GpuRow
    range: str
    times: Sequence[float]
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
    begins: float | None = msgspec.field(name="from")
    note: str = ""


def namespaces(cluster: Snapshot, name: str, columns: Columns) -> frozenset[str]:
    """Those of the pods on the node, and of those that were on the GPU."""
    return node.namespaces(cluster, name) | {one["namespace"] for one in columns["shares"]}


def answer(
    cluster: Snapshot,
    name: str,
    index: int,
    range_: str,
    columns: Columns,
    number: Number,
    allowed: Allowed,
    over_for: OverFor = gpus.not_known,
) -> GpuPage | None:
    """None: there is no such GPU. `over_for`: for how many seconds a pod has used too much of a GPU."""
    one = gpus.find(cluster, name)
    rows = gpus.rows(one, number, allowed, over_for) if one is not None else []
    row = next((row for row in rows if row.index == index), None)
    if row is None:
        return None
    figures = {key: columns[key] for key in ("times", "total", "granted", "used", "util", "temp", "power")}
    return GpuPage(
        node=name,
        gpu=row,
        range=range_,
        **figures,
        temp_limit=row.temp_limit,
        power_limit=row.power_limit,
        shares=[_share(share, allowed) for share in columns["shares"]],
        source=columns["source"],
        begins=columns["from"],
        note=columns["note"],
    )


def key(cluster: Snapshot, name: str, index: int) -> str | None:
    """What identifies a GPU of a node over time: its UUID, or its index where it has none; None: there is no such
    GPU."""
    facts = cluster.ledger.facts(name)
    return next((gpu.key for gpu in facts.gpus if gpu.index == index), None) if facts is not None else None


def _share(one: Columns, allowed: Allowed) -> ShareSeries:
    shown = names(one["namespace"], one["pod"], allowed)
    return ShareSeries(*shown, one.get("number"), one["granted"], one["used"])
