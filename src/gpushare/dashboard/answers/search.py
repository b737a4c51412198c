"""Nodes, GPUs and pods by a part of their name, those first whose name begins with it.

Pure, and quick enough to be asked at every key: it looks through all names once.
"""

from collections.abc import Sequence
from typing import TypeVar

from gpushare.core.facts import intree
from gpushare.dashboard.allowed import Allowed, is_allowed
from gpushare.dashboard.answers.body import Body
from gpushare.view.snapshot import Snapshot

MOST = 20  # of each kind
LONGEST = 320  # characters of a question: a namespace, a slash and the longest name
GPU_PREFIX = "GPU-"  # how UUIDs begin; people leave it out

Named = TypeVar("Named", bound=intree.Pod | intree.Node)


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
    space, name = _read(question)
    matching = [pod.metadata.namespace for pod in cluster.pods if name in pod.metadata.name] if name else []
    return frozenset(matching) if not space else frozenset({space}.intersection(matching))


def answer(cluster: Snapshot, question: str, allowed: Allowed) -> SearchPage:
    """Case does not matter: names in Kubernetes are small. `namespace/name` is a pod."""
    space, name = _read(question)
    if not name:
        return SearchPage([], [], [])
    there = [pod for pod in cluster.pods if pod.metadata.namespace == space] if space else cluster.pods
    hits = [_hit(cluster, pod) for pod in _first(there, name, allowed)]
    if space:
        return SearchPage([], [], hits)
    nodes = _first(cluster.nodes, name, None)
    return SearchPage([node.metadata.name for node in nodes], _gpus(cluster, name), hits)


def _read(question: str) -> tuple[str, str]:
    """A namespace, if one is named, and a part of a name."""
    space, _, name = question.strip().lower()[:LONGEST].rpartition("/")
    return space, name


def _first(named: Sequence[Named], wanted: str, allowed: Allowed) -> list[Named]:
    """The first of those that begin with it, then of those that have it elsewhere, in the order they have."""
    begins: list[Named] = []
    others: list[Named] = []
    for one in named:
        name = one.metadata.name
        if wanted in name and is_allowed(allowed, one.metadata.namespace):
            (begins if name.startswith(wanted) else others).append(one)
            if len(begins) == MOST:
                break
    return [*begins, *others][:MOST]


def _gpus(cluster: Snapshot, wanted: str) -> list[GpuHit]:
    """By the beginning of the UUID."""
    start = f"{GPU_PREFIX}{wanted.removeprefix(GPU_PREFIX.lower())}"
    found: list[GpuHit] = []
    for node in cluster.nodes if start != GPU_PREFIX else ():
        facts = cluster.ledger.facts(node.metadata.name)
        gpus = facts.gpus if facts is not None else ()
        found += [GpuHit(node.metadata.name, gpu.index, gpu.uuid) for gpu in gpus if gpu.uuid.startswith(start)]
        if len(found) >= MOST:
            break
    return found[:MOST]


def _hit(cluster: Snapshot, pod: intree.Pod) -> PodHit:
    meta, node = pod.metadata, pod.spec.node_name or ""
    holding, facts = cluster.ledger.holding(meta.uid), cluster.ledger.facts(node)
    charges = (holding.charges if holding is not None else None) or ()
    gpu = facts.gpus[charges[0].gpu].index if facts is not None and len(charges) == 1 else None
    return PodHit(meta.namespace, meta.name, node, gpu)
