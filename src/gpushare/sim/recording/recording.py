"""A whole cluster at one moment as a trace."""

import hashlib
import hmac
from collections.abc import Iterable

import msgspec

from gpushare.sim.reading import checks
from gpushare.sim.recording import machines, pods
from gpushare.sim.recording.machines import Machine
from gpushare.sim.recording.models import Models
from gpushare.sim.recording.pods import LivePod, Reading
from gpushare.sim.trace import Node, Pod
from gpushare.view import snapshot
from gpushare.view.snapshot import Items, Snapshot
from gpushare.view.source import Source

_DIGITS = 16  # of a hashed name


class Recording(msgspec.Struct):
    nodes: tuple[Node, ...]  # that have GPUs, by name
    pods: tuple[Pod, ...]  # by arrival
    left_out: list[str]  # names of pods that no node could ever take, or whose request a trace cannot say


def read(source: Source, now: float) -> Recording:
    """Asks for all nodes and all pods. A UserError says what is wrong."""
    nodes = snapshot.decode(source.get(snapshot.NODES), Items[snapshot.Node], snapshot.NODES)
    live = snapshot.decode(source.get(snapshot.PODS), Items[LivePod], snapshot.PODS)
    return record(snapshot.build(nodes.items or [], live.items or [], now), live.items or [])


def record(cluster: Snapshot, live: Iterable[LivePod]) -> Recording:
    there = machines.read(cluster)
    nodes = tuple([machine.node for machine in there.values()])
    sorts = checks.one_of_each(nodes)
    reading, models = Reading(there), Models(cluster.nodes, there)
    kept: list[tuple[float, Pod]] = []
    left_out: list[str] = []
    for pod in live:
        if pod.metadata.comes_with_node:
            continue
        allowed = models.allowed(pod)
        asked = reading.asked(pod, allowed or ())
        if asked is not None and not asked.gpus and not _counts(pod, there):
            continue
        if asked is None or allowed is None or checks.too_large(asked, [node for node in sorts if asked.may_use(node)]):
            left_out.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
            continue
        asked = msgspec.structs.replace(asked, duration=pods.duration(pod))
        kept.append((pods.arrival(pod) or 0.0, asked))
    kept.sort(key=lambda one: (one[0], one[1].name))
    first = kept[0][0] if kept else 0.0
    arrived = tuple([msgspec.structs.replace(pod, arrival=at - first) for at, pod in kept])
    return Recording(nodes, arrived, sorted(left_out))


def hashed(recording: Recording, salt: bytes) -> Recording:
    """The same without names. Without the salt, which is kept nowhere, nobody can try names until one matches."""

    def hidden(kind: str, name: str) -> str:
        return f"{kind}-{hmac.digest(salt, name.encode(), hashlib.sha256).hex()[:_DIGITS]}"

    nodes = [msgspec.structs.replace(node, name=hidden("node", node.name)) for node in recording.nodes]
    asking = [msgspec.structs.replace(pod, name=hidden("pod", pod.name)) for pod in recording.pods]
    # In an order that says nothing of the names either.
    nodes.sort(key=lambda node: node.name)
    asking.sort(key=lambda pod: (pod.arrival, pod.name))
    return Recording(tuple(nodes), tuple(asking), recording.left_out)


def _counts(pod: LivePod, there: dict[str, Machine]) -> bool:
    """Whether a pod without GPUs takes CPU and memory of a node that has some."""
    return (pod.spec.node_name or "") in there
