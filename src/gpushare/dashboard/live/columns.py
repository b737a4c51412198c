"""One node as numbers for the stream: what it offers, what is given out, and what its GPUs do.

Pure. All amounts are MiB, and -1 is unknown. They are the figures of `gpushare inspect`. No name of a pod or of a
namespace is in them.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import msgspec

from gpushare.core.explain import measured
from gpushare.core.facts import intree, units, vitals
from gpushare.core.facts.model import Gpu, Pin, PodFacts
from gpushare.core.facts.vitals import ContainerVitals, FullStatus, GpuAndContainers
from gpushare.core.ledger.ledger import Ledger
from gpushare.dashboard import standing
from gpushare.dashboard.live.numbers import Numbers, Table
from gpushare.view import sold, usage
from gpushare.view.snapshot import Snapshot
from gpushare.view.usage import NodeUse

UNKNOWN = -1
PINS = tuple(pin.value for pin in Pin)
Share = tuple[int, int, int]
"""Numbers of its pod and namespace, and what it was given."""
Sold = tuple[str, int, int]
"""A resource that is sold by count, how many there are, and how many are given out."""


class Figures(NamedTuple):
    """What changes of a GPU."""

    healthy: int
    granted: int
    free: int
    used: int
    util: int
    temp: int
    power: int
    over: int  # what its containers use above what each was given


class Column(msgspec.Struct, frozen=True, gc=False):
    """What stays of a GPU."""

    id: int
    key: str  # its UUID, or its index where it has none
    index: int
    model: int  # place in a table
    total: int


class Row(msgspec.Struct):
    """A node. Lists of GPUs are in the order of the node's own."""

    id: int
    name: str
    unit: str
    pin: int  # places in tables
    zone: int
    state: str
    sold: list[Sold] | None
    sampled: float | None  # when its figures were read, in seconds since 1970
    until: float  # when to look again although nothing changed: figures become too old
    gpus: list[Column]
    figures: list[Figures]
    shares: list[list[Share]]
    pods: list[list[PodFacts]]  # whose shares these are
    used: list[list[int]]  # what they use
    unplaced: int  # pods that are bound there, nobody knows on which GPU

    def age(self, now: float) -> int:
        return UNKNOWN if self.sampled is None else max(round(now - self.sampled), 0)


class Tables:
    """The numbers and words that all rows share."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.models, self.zones = Table(), Table("")
        self._nodes: dict[str, int] = {}
        self._gpus: dict[tuple[str, str], int] = {}

    def node(self, name: str) -> int:
        return self._nodes.setdefault(name, len(self._nodes))

    def gpu(self, node: str, key: str) -> int:
        return self._gpus.setdefault((node, key), len(self._gpus))

    @property
    def size(self) -> int:
        """Grows when a word comes that browsers do not know."""
        return len(self.models) + len(self.zones)


def row(
    node: intree.Node,
    ledger: Ledger,
    buyers: Sequence[intree.Pod],
    status: FullStatus | None,
    now: float,
    tables: Tables,
) -> Row | None:
    """None: it has nothing to do with GPUs. `buyers`: pods there that may have GPUs by count."""
    alone = Snapshot([node], list(buyers), ledger, [], now)
    use, selling = next(iter(usage.nodes(alone)), None), sold.uses(alone)
    if use is None and not selling:
        return None
    name = node.metadata.name
    facts = ledger.facts(name)
    fresh = status if status is not None and vitals.is_fresh(status, now) else None
    gpus = facts.gpus if facts is not None else ()
    mib = units.BYTES_IN[facts.unit] >> 20 if facts is not None else 1
    doing = measured.by_index(fresh.gpus or (), facts) if fresh is not None and facts is not None else {}
    made = Row(
        id=tables.node(name),
        name=name,
        unit=use.unit if use is not None else facts.unit if facts is not None else "",
        pin=PINS.index(standing.pin(facts, use)),
        zone=tables.zones.place(standing.zone(node)),
        state=standing.state(node, facts, use),
        sold=[(one.resource, one.total, one.used) for one in selling] or None,
        sampled=None,
        until=inf,
        gpus=[
            Column(tables.gpu(name, gpu.key), gpu.key, gpu.index, tables.models.place(gpu.model), gpu.total * mib)
            for gpu in gpus
        ],
        figures=[],
        shares=[],
        pods=[],
        used=[],
        unplaced=sum(1 for pod in use.pods if pod.why) if use is not None else 0,
    )
    _when(made, status, now)
    _fill(made, use, gpus, ledger, mib, doing, tables.numbers)
    return made


def _when(row: Row, status: FullStatus | None, now: float) -> None:
    age = vitals.age(status, now) if status is not None else None
    if status is None or age is None:
        return
    at = now - age
    row.sampled = at
    if age < -vitals.AHEAD_SECONDS:
        row.until = at - vitals.AHEAD_SECONDS
    elif age <= vitals.counts_for(status):
        row.until = at + vitals.counts_for(status)


def _fill(
    row: Row,
    use: NodeUse | None,
    gpus: Sequence[Gpu],
    ledger: Ledger,
    mib: int,
    doing: dict[int, GpuAndContainers],
    numbers: Numbers,
) -> None:
    state = ledger.node(row.name)
    taken = state.effective().units if state is not None and use is not None else [UNKNOWN] * len(gpus)
    free = {gpu.index: gpu.free for gpu in use.gpus} if use is not None else {}
    pods = sorted(use.pods, key=lambda one: (one.pod.namespace, one.pod.name)) if use is not None else []
    on: dict[int, list[tuple[PodFacts, int]]] = {gpu.index: [] for gpu in gpus}
    for one in pods:
        for index, amount in one.on.items():
            on[index].append((one.pod, amount * mib))
    for gpu, column, used in zip(gpus, row.gpus, taken, strict=True):
        found = doing.get(gpu.index)
        granted = min(used, gpu.total) * mib if use is not None else UNKNOWN
        row.figures.append(_figures(gpu, granted, free.get(gpu.index, 0) * mib if use is not None else UNKNOWN, found))
        there = on[gpu.index]
        row.shares.append(
            [(numbers.pod(p.uid, column.id), numbers.namespace(p.namespace), amount) for p, amount in there]
        )
        row.pods.append([pod for pod, _ in there])
        row.used.append(_used(there, found))


def _figures(gpu: Gpu, granted: int, free: int, doing: GpuAndContainers | None) -> Figures:
    healthy = int(gpu.healthy)
    if doing is None:
        return Figures(healthy, granted, free, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
    over = sum(map(measured.over, doing.containers))
    return Figures(
        healthy,
        granted,
        free,
        UNKNOWN if doing.used_mib is None else doing.used_mib,
        UNKNOWN if doing.utilization is None else doing.utilization,
        UNKNOWN if doing.temperature is None else doing.temperature,
        UNKNOWN if doing.power_watts is None else doing.power_watts,
        over,
    )


def _used(there: Sequence[tuple[PodFacts, int]], doing: GpuAndContainers | None) -> list[int]:
    """What each of these pods uses of a GPU."""
    by_pod: dict[str, list[ContainerVitals]] = {}
    for one in doing.containers if doing is not None else ():
        by_pod.setdefault(one.uid, []).append(one)
    uses = [measured.use(by_pod.get(pod.uid, ())) for pod, _ in there]
    return [UNKNOWN if use is None or use.used is None else use.used for use in uses]
