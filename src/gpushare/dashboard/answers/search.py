"""Nodes, GPUs and pods by a part of their name, those first whose name begins with it.

Pure, and quick enough to be asked at every key: it looks through all names once.
"""

from collections.abc import Iterable
from heapq import nsmallest

from gpushare.core.facts import intree
from gpushare.dashboard.allowed import Allowed, is_allowed
from gpushare.dashboard.answers.body import Body
from gpushare.view.snapshot import Snapshot

MOST = 20  # of each kind
LONGEST = 320  # characters of a question: a namespace, a slash and the longest name
GPU_PREFIX = "gpu-"  # how UUIDs begin; people leave it out

Rank = tuple[int, str, str]
"""0 if a name begins with what is looked for, else 1; then the name, and its namespace."""


class GpuHit(Body):
    node: str
    index: int
    uuid: str


class PodHit(Body):
    """`gpu`: None if the pod has none, several, or nobody knows which."""

    namespace: str
    name: str
    node: str
    gpu: int | None


class SearchPage(Body):
    nodes: list[str]
    gpus: list[GpuHit]
    pods: list[PodHit]


def namespaces(cluster: Snapshot, question: str) -> frozenset[str]:
    """Those of the pods that match."""
    return frozenset(pod.metadata.namespace for _, pod in _pods(cluster, _read(question), None))


def answer(cluster: Snapshot, question: str, allowed: Allowed) -> SearchPage:
    """Case does not matter. `namespace/name` is understood, too."""
    wanted = _read(question)
    if not wanted:
        return SearchPage([], [], [])
    ranks = (_rank(node.metadata.name, wanted) for node in cluster.nodes)
    nodes = nsmallest(MOST, (rank for rank in ranks if rank is not None))
    pods = nsmallest(MOST, _pods(cluster, wanted, allowed), key=lambda hit: hit[0])
    return SearchPage([name for _, name, _ in nodes], _gpus(cluster, wanted), [_hit(cluster, pod) for _, pod in pods])


def _read(question: str) -> str:
    return question.strip().lower()[:LONGEST]


def _rank(name: str, wanted: str, namespace: str = "") -> Rank | None:
    """None: it does not match."""
    place = name.lower().find(wanted)
    return None if place < 0 else (min(place, 1), name, namespace)


def _gpus(cluster: Snapshot, wanted: str) -> list[GpuHit]:
    """By the beginning of the UUID."""
    wanted = wanted.removeprefix(GPU_PREFIX)
    found: list[GpuHit] = []
    for node in cluster.nodes if wanted else ():
        name = node.metadata.name
        facts = cluster.ledger.facts(name)
        gpus = facts.gpus if facts is not None else ()
        matching = (gpu for gpu in gpus if gpu.uuid.lower().removeprefix(GPU_PREFIX).startswith(wanted))
        found += [GpuHit(name, gpu.index, gpu.uuid) for gpu in matching]
        if len(found) >= MOST:
            break
    return found[:MOST]


def _pods(cluster: Snapshot, wanted: str, allowed: Allowed) -> Iterable[tuple[Rank, intree.Pod]]:
    if not wanted:
        return
    space, slash, name = wanted.partition("/")
    for pod in cluster.pods:
        meta = pod.metadata
        if slash and meta.namespace.lower() != space:
            continue
        rank = _rank(meta.name, name if slash else wanted, meta.namespace)
        if rank is not None and is_allowed(allowed, meta.namespace):
            yield rank, pod


def _hit(cluster: Snapshot, pod: intree.Pod) -> PodHit:
    meta, node = pod.metadata, pod.spec.node_name or ""
    holding, facts = cluster.ledger.holding(meta.uid), cluster.ledger.facts(node)
    charges = (holding.charges if holding is not None else None) or ()
    gpu = facts.gpus[charges[0].gpu].index if facts is not None and len(charges) == 1 else None
    return PodHit(meta.namespace, meta.name, node, gpu)
