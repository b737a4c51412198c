"""Each GPU of the cluster, and each pod that has a part of one, with what was given and what is used.

Pure, from a `Snapshot` with what GPUs do. Amounts are in MiB. None is unknown: it is never taken for 0, and comes last
in every order.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gpushare.core.explain import measured
from gpushare.core.facts import vitals
from gpushare.core.facts.model import Gpu, NodeFacts
from gpushare.core.facts.vitals import GpuAndContainers
from gpushare.view import usage
from gpushare.view.snapshot import Snapshot
from gpushare.view.usage import MIB_IN_GIB, NodeUse, PodUse


class GpuRow(msgspec.Struct, frozen=True, rename="camel"):
    node: str
    gpu: int
    model: str
    total: int
    granted: int | None  # None: the node sells GPUs by count, and nobody knows which one a pod has
    used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power: int | None = None  # W
    pods: int = 0
    over: int = 0  # what containers use above what each was given
    healthy: bool = True


class PodRow(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    name: str
    node: str
    gpus: list[int]
    granted: int
    used: int | None = None
    over: int = 0


class Rows(msgspec.Struct, frozen=True):
    gpus: list[GpuRow]
    pods: list[PodRow]
    unpublished: list[str]  # nodes of which nothing is known of what their GPUs do


def _high(figure: Callable[[GpuRow], int | None]) -> Callable[[GpuRow], tuple[int, ...]]:
    """The highest first."""

    def key(row: GpuRow) -> tuple[int, ...]:
        value = figure(row)
        return (1,) if value is None else (0, -value)

    return key


ORDERS: Final[dict[str, Callable[[GpuRow], tuple[int, ...]]]] = {
    "used": _high(lambda row: row.used),
    "busy": _high(lambda row: row.utilization),
    "granted": _high(lambda row: row.granted),
    "free": _high(lambda row: row.total - row.granted if row.granted is not None and row.healthy else None),
    "idle": _high(lambda row: row.granted - row.used if row.granted is not None and row.used is not None else None),
    "over": _high(lambda row: row.over),
    "temperature": _high(lambda row: row.temperature),
    "watts": _high(lambda row: row.power),
    "name": lambda row: (),
}
"""By name of the order. Equal GPUs stand by node and number."""


def rows(cluster: Snapshot) -> Rows:
    shares = usage.nodes(cluster)
    fresh = {name: status for name, status in cluster.doing.items() if vitals.is_fresh(status, cluster.now)}
    sellers = [facts for node in cluster.nodes if (facts := _selling(cluster, node.metadata.name, shares)) is not None]
    gpus: list[GpuRow] = []
    for use in shares:
        figures = measured.by_index(fresh[use.name].gpus or (), use.facts) if use.name in fresh and use.facts else {}
        gpus += _shared(use, figures)
    for facts in sellers:
        figures = measured.by_index(fresh[facts.name].gpus or (), facts) if facts.name in fresh else {}
        gpus += [_row(facts.name, gpu, facts, None, 0, figures.get(gpu.index)) for gpu in facts.gpus]
    known = {use.name for use in shares} | {facts.name for facts in sellers}
    pods = [row for use in shares for pod in use.pods if (row := _pod(use, pod)) is not None]
    pods.sort(key=lambda row: (-row.over, row.used is None, -(row.used or 0), row.namespace, row.name))
    return Rows(sorted(gpus, key=lambda row: (row.node, row.gpu)), pods, sorted(known - fresh.keys()))


def ordered(gpus: list[GpuRow], order: str) -> list[GpuRow]:
    """`gpus` stand by name."""
    return sorted(gpus, key=ORDERS[order])


def _selling(cluster: Snapshot, name: str, shares: list[NodeUse]) -> NodeFacts | None:
    """What a node publishes that sells its GPUs by count, and is not among those that share them."""
    facts = cluster.ledger.facts(name)
    return facts if facts is not None and facts.sold and not any(use.name == name for use in shares) else None


def _shared(use: NodeUse, figures: dict[int, GpuAndContainers]) -> Iterator[GpuRow]:
    if use.facts is None:
        return  # it does not say how many GPUs it has
    for gpu, given in zip(use.facts.gpus, use.gpus, strict=True):
        pods = sum(gpu.index in pod.on for pod in use.pods)
        yield _row(use.name, gpu, use.facts, given.used * _mib(use), pods, figures.get(gpu.index))


def _row(
    node: str, gpu: Gpu, facts: NodeFacts, granted: int | None, pods: int, doing: GpuAndContainers | None
) -> GpuRow:
    total = gpu.total * (MIB_IN_GIB if facts.unit == "GiB" else 1)
    row = GpuRow(node, gpu.index, gpu.model, total, granted, pods=pods, healthy=gpu.healthy)
    if doing is None:
        return row
    return msgspec.structs.replace(
        row,
        used=doing.used_mib,
        utilization=doing.utilization,
        temperature=doing.temperature,
        power=doing.power_watts,
        pods=pods or len({one.uid for one in doing.containers}),
        over=sum(map(measured.over, doing.containers)),
    )


def _pod(use: NodeUse, pod: PodUse) -> PodRow | None:
    found = use.measured.pods.get(pod.pod.uid) if use.measured is not None else None
    granted = (sum(pod.on.values()) + pod.pending) * _mib(use)
    facts = pod.pod
    row = PodRow(facts.namespace, facts.name, use.name, sorted(pod.on), granted)
    return row if found is None else msgspec.structs.replace(row, used=found.used, over=found.over)


def _mib(use: NodeUse) -> int:
    return MIB_IN_GIB if use.unit == "GiB" else 1
