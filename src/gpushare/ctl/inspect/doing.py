"""What GPUs and pods do, beside the tables: cells of `-o wide`, and sentences below.

No I/O. Unknown is `-`, never 0. A pod that uses more than it asked is marked in its row, and a sentence says who is at
risk.
"""

from collections.abc import Sequence

from gpushare.core.facts.model import Unit
from gpushare.core.facts.vitals import FullStatus
from gpushare.view import wording
from gpushare.view.measured import Over
from gpushare.view.usage import MIB_IN_GIB, NodeUse, PodUse

COLUMNS = ("USED", "UTIL")
POD_COLUMN = "USED"
UNKNOWN = "-"
MARK = "{used}, over by {over}"
OVER = "{pod} uses {used} MiB on {node} GPU {gpu}, {over} MiB more than it asked{risk}."
AT_RISK = ": others there can run out of memory"
STALE = "{node}: what its GPUs do is unknown: {why}."
CONTAINERS = "What each container uses is unknown on {nodes}: {why}."


def is_known(nodes: Sequence[NodeUse]) -> bool:
    """Whether any of these nodes publishes what its GPUs do: else there are no columns for it."""
    return any(node.measured is not None for node in nodes)


def row(node: NodeUse, unit: Unit | None) -> list[str]:
    """The cells of `COLUMNS`."""
    found = node.measured
    if found is None:
        return [UNKNOWN, UNKNOWN]
    return [_amount(found.used, unit), UNKNOWN if found.utilization is None else f"{found.utilization}%"]


def pod_cell(node: NodeUse, pod: PodUse, unit: Unit | None) -> str:
    """What a pod uses, marked if that is more than it asked."""
    use = node.measured.pods.get(pod.pod.uid) if node.measured is not None else None
    if use is None:
        return UNKNOWN
    used = _amount(use.used, unit)
    return MARK.format(used=used, over=_amount(use.over, unit)) if use.over else used


def over_use(nodes: Sequence[NodeUse]) -> list[str]:
    """A sentence for each container that uses more of a GPU than it asked, the worst of a node first. Pods that are
    gone may still be in what was published last."""
    return [
        _over(node, over)
        for node in nodes
        if node.measured is not None
        for over in sorted(node.measured.over, key=lambda one: -one.by)
        if any(pod.pod.uid == over.of.uid for pod in node.pods)
    ]


def stale(nodes: Sequence[NodeUse], now: float) -> list[str]:
    """A sentence for each node whose driver does not answer, or whose figures are too old to be shown."""
    return [
        STALE.format(node=node.name, why=node.measured.why_unknown(now))
        for node in nodes
        if node.measured is not None and not node.measured.is_sampled
    ]


def without_containers(nodes: Sequence[NodeUse]) -> dict[str, list[str]]:
    """Nodes that tell what their GPUs do, but not what each container does, by the reason they give."""
    by_reason: dict[str, list[str]] = {}
    for node in nodes:
        if node.measured is not None and node.measured.is_sampled and node.measured.status.containers_unknown:
            by_reason.setdefault(wording.printable(node.measured.status.containers_unknown), []).append(node.name)
    return by_reason


def _over(node: NodeUse, over: Over) -> str:
    one = over.of
    containers = [other for gpu in _status(node).gpus or () for other in gpu.containers if other.uid == one.uid]
    several = len({other.container for other in containers}) > 1
    pod = one.pod if one.namespace == "default" else f"{one.namespace}/{one.pod}"
    who = f"{pod} ({one.container})" if several else pod
    risk = AT_RISK if over.shared else ""
    return OVER.format(
        pod=wording.printable(who), used=one.used_mib, node=node.name, gpu=over.gpu, over=over.by, risk=risk
    )


def _status(node: NodeUse) -> FullStatus:
    return node.measured.status if node.measured is not None else FullStatus()


def _amount(mib: int | None, unit: Unit | None) -> str:
    if mib is None:
        return UNKNOWN
    return f"{mib / MIB_IN_GIB:.1f}" if unit == "GiB" else str(mib)
