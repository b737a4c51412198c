"""What nodes sell by count, as a table below that of GPU memory; and the same for programs.

No I/O. kube-scheduler gives these out, and not gpushare. With `-d` there is one more row for each pod.
"""

from collections.abc import Sequence

from gpushare.core.facts import intree
from gpushare.ctl.inspect import table
from gpushare.view import wording
from gpushare.view.sold import Buyer, SoldUse

TITLE = "Sold by count; kube-scheduler decides about these, not gpushare:"
UNHEALTHY = "{node}: {unhealthy} of {all} {resource} are unhealthy and not given out."
UNKNOWN = "-"
_COLUMNS = ("NODE", "SELLS", "SHARING", "GPUS", "TOTAL", "USED", "FREE")
_WIDE = ("PODS", "UNHEALTHY")
_PODS = ("NODE", "SELLS", "NAMESPACE", "NAME", "USED")
_PODS_WIDE = ("STATUS", "PRIORITY", "AGE")


def lines(uses: Sequence[SoldUse], now: float, *, details: bool, wide: bool) -> list[str]:
    """The table as text; nothing if no node sells anything by count."""
    if not uses:
        return []
    drawn = table.plain_rows([[*_COLUMNS, *(_WIDE if wide else ())], *(_row(use, wide) for use in uses)])
    pods = [_pod_row(use, buyer, now, wide) for use in uses for buyer in use.buyers]
    if details and pods:
        drawn += ["", *table.plain_rows([[*_PODS, *(_PODS_WIDE if wide else ())], *pods])]
    return [TITLE, *drawn]


def unhealthy(uses: Sequence[SoldUse]) -> list[str]:
    """Sentences about what the table alone does not explain."""
    return [
        UNHEALTHY.format(node=use.node, unhealthy=use.unhealthy, all=use.total + use.unhealthy, resource=use.resource)
        for use in uses
        if use.unhealthy
    ]


def view(use: SoldUse) -> dict[str, object]:
    """The same for programs."""
    return {
        "node": use.node,
        "resource": use.resource,
        "sharing": use.sharing or None,
        "gpus": use.gpus,
        "total": use.total,
        "used": use.used,
        "free": use.free,
        "unhealthy": use.unhealthy,
        "pods": [{**_place(buyer.pod), "used": buyer.amount} for buyer in use.buyers],
    }


def _row(use: SoldUse, wide: bool) -> list[str]:
    gpus = UNKNOWN if use.gpus is None else str(use.gpus)
    row = [use.node, use.resource, use.sharing or UNKNOWN, gpus, *map(str, (use.total, use.used, use.free))]
    return [*row, str(len(use.buyers)), str(use.unhealthy or UNKNOWN)] if wide else row


def _pod_row(use: SoldUse, buyer: Buyer, now: float, wide: bool) -> list[str]:
    row = [use.node, use.resource, *_place(buyer.pod).values(), str(buyer.amount)]
    if not wide:
        return row
    meta = buyer.pod.metadata
    status = "Terminating" if meta.deletion_timestamp else buyer.pod.status.phase or "Pending"
    return [*row, status, str(buyer.pod.spec.priority or 0), wording.age(meta.creation_timestamp or "", now)]


def _place(pod: intree.Pod) -> dict[str, str]:
    return {"namespace": pod.metadata.namespace, "name": pod.metadata.name}
