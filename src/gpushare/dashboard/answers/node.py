"""One node: its GPUs, what would still fit there, and what figures alone do not explain.

Pure.
"""

from typing import NamedTuple

from gpushare.core.explain import figures
from gpushare.core.facts import intree, units, vitals
from gpushare.core.facts.model import NodeFacts
from gpushare.dashboard import standing
from gpushare.dashboard.allowed import Allowed, is_allowed
from gpushare.dashboard.answers import gpus
from gpushare.dashboard.answers.body import Body, Number, in_words, mib, names
from gpushare.dashboard.answers.gpus import GpuRow, OneNode, OverFor
from gpushare.view import measured, remarks, usage, wording
from gpushare.view.snapshot import NodeStatus, Snapshot
from gpushare.view.sold import SoldUse
from gpushare.view.why.text import ways

NOT_PUBLISHED = "this node does not publish what its GPUs do (GPUNode)"
NO_SHARED_GPU = "{node} offers no GPU memory, and sells no GPUs by count."
NOTHING_NEW = "{node} is a node {which}: no new pod comes there. {hint}"
CORDONED = "{node} is cordoned: kube-scheduler sends no new pod there."
CONTAINERS = "What each container uses is unknown: {why}."
DRIVER = "nvidia.com/cuda.driver-version.full"  # a label of gpu-feature-discovery, and of our own
READY = "Ready"


class Kubelet(Body):
    ready: bool | None
    version: str


class Fits(Body):
    """How many pods of a size, in MiB, still fit."""

    size: int
    count: int


class Buyer(Body):
    namespace: str
    pod: str
    amount: int


class Sold(Body):
    """A resource that is sold by count. `pods` has those that the reader may see."""

    resource: str
    sharing: str | None
    total: int
    used: int
    free: int
    unhealthy: int
    pods: list[Buyer]
    hidden: int  # pods of others


class Pending(Body):
    """A pod that is bound there without a known GPU."""

    namespace: str | None
    pod: str | None
    units: int  # MiB
    why: str


class NodePage(Body):
    name: str
    unit: str
    pin: str
    state: str
    model: str
    driver: str
    kubelet: Kubelet
    zone: str
    address: str
    sampled_at: str
    age: float | None
    why: str  # there are no figures of what its GPUs do
    gpus: list[GpuRow]
    fits: list[Fits]
    whole: int
    sold: list[Sold]
    pending: list[Pending]
    notes: list[str]


class _Sampling(NamedTuple):
    at: str
    age: float | None
    why: str
    containers: str  # why nothing is known of containers


def namespaces(cluster: Snapshot, name: str) -> frozenset[str]:
    """Those of the pods on a node, and of those that its GPUs are kept for."""
    state = cluster.ledger.node(name)
    waiting = {kept.pod.namespace for kept in state.kept()} if state is not None else set()
    return frozenset(waiting | {pod.metadata.namespace for pod in cluster.pods if pod.spec.node_name == name})


def answer(
    cluster: Snapshot, name: str, number: Number, allowed: Allowed, over_for: OverFor = gpus.not_known
) -> NodePage | None:
    """None: there is no such node. `over_for`: for how many seconds a pod has used too much of a GPU."""
    one = gpus.find(cluster, name)
    if one is None:
        return None
    facts, rows, sampling = cluster.ledger.facts(name), gpus.rows(one, number, allowed, over_for), _sampling(one)
    fits, whole = _fits(cluster, name)
    unit = one.use.unit if one.use is not None else facts.unit if facts is not None else ""
    return NodePage(
        name=name,
        unit=unit,
        pin=standing.pin(facts, one.use) if one.use is not None or one.selling else "",
        state=standing.state(one.node, facts, one.use) if one.use is not None or one.selling else "",
        model=", ".join(dict.fromkeys(row.model for row in rows if row.model)),
        driver=one.status.driver if one.status is not None and one.status.driver else _label(one.node, DRIVER),
        kubelet=_kubelet(one.node),
        zone=standing.zone(one.node),
        address=usage.address(one.node),
        sampled_at=sampling.at,
        age=sampling.age,
        why=sampling.why,
        gpus=rows,
        fits=fits,
        whole=whole,
        sold=[_sold(use, allowed) for use in one.selling],
        pending=_pending(one, allowed),
        notes=_notes(one, facts, sampling, allowed),
    )


def _label(node: intree.Node, key: str) -> str:
    return (node.metadata.labels or {}).get(key, "")


def _kubelet(node: intree.Node) -> Kubelet:
    known = node.status.conditions if isinstance(node.status, NodeStatus) else None
    ready = next((one.status == "True" for one in known or () if one.type == READY), None)
    return Kubelet(ready, node.status.kubelet_version)


def _sampling(one: OneNode) -> _Sampling:
    if one.status is None:
        return _Sampling("", None, NOT_PUBLISHED, "")
    now = one.cluster.now
    found = measured.Measured(one.status, fresh=vitals.is_fresh(one.status, now))
    containers = wording.printable(one.status.containers_unknown) if found.is_sampled else ""
    age = vitals.age(one.status, now)
    return _Sampling(
        one.status.sampled_at if age is not None else "",
        max(age, 0.0) if age is not None else None,
        found.why_unknown(now),
        containers,
    )


def _fits(cluster: Snapshot, name: str) -> tuple[list[Fits], int]:
    """The largest piece that is free, the usual sizes below it, and GPUs that nobody uses."""
    state = cluster.ledger.node(name)
    room = state.room if state is not None else None
    if state is None or room is None or room.facts.sold:
        return [], 0
    largest = max(room.rising, default=0) * units.BYTES_IN[room.facts.unit]
    usual = [size for size in figures.FIXED.values() if size <= room.largest * units.BYTES_IN[room.facts.unit]]
    sizes = sorted({*usual, *([largest] if largest else [])}, reverse=True)
    counts, whole = figures.of_node(state, sizes)
    return [Fits(size >> 20, count) for size, count in zip(sizes, counts, strict=True)], whole


def _sold(use: SoldUse, allowed: Allowed) -> Sold:
    shown = [
        Buyer(buyer.pod.metadata.namespace, buyer.pod.metadata.name, buyer.amount)
        for buyer in use.buyers
        if is_allowed(allowed, buyer.pod.metadata.namespace)
    ]
    hidden = len(use.buyers) - len(shown)
    return Sold(use.resource, use.sharing or None, use.total, use.used, use.free, use.unhealthy, shown, hidden)


def _pending(one: OneNode, allowed: Allowed) -> list[Pending]:
    if one.use is None:
        return []
    factor = mib(one.use.unit)
    return [
        Pending(*names(pod.pod.namespace, pod.pod.name, allowed), pod.pending * factor, pod.why)
        for pod in one.use.pods
        if pod.why
    ]


def _notes(one: OneNode, facts: NodeFacts | None, sampling: _Sampling, allowed: Allowed) -> list[str]:
    notes = [CORDONED.format(node=one.name)] if one.node.spec.unschedulable else []
    if one.use is None:
        return notes if one.selling else [*notes, NO_SHARED_GPU.format(node=one.name)]
    if facts is not None and facts.blocked is not None:
        which = facts.blocked.message.removeprefix("node(s) ")
        hint = ways.HINTS.get(facts.blocked.code, "")
        notes.append(NOTHING_NEW.format(node=one.name, which=which, hint=hint).rstrip())
    shown, named = [one.use], in_words(allowed)
    return [
        *notes,
        *remarks.unhealthy(shown, one.use.unit),
        *remarks.kept(one.cluster.ledger, shown, named),
        *remarks.slots(shown),
        *remarks.mps_down(shown),
        *remarks.whole(shown),
        *([CONTAINERS.format(why=sampling.containers)] if sampling.containers else []),
    ]
