"""The cluster as the API server shows it now: four watches, one ledger, and the same `Snapshot` that commands read.

Nothing waits for what GPUs do or for the ConfigMaps of unhealthy GPUs: a cluster may have none, and a user may not be
allowed to read them.
"""

import asyncio
import bisect
import time
from collections.abc import Callable
from typing import Any

import msgspec

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.scheduling import patience
from gpushare.dashboard.live.numbers import Numbers
from gpushare.dashboard.live.sinks import Doing, GpuNode, Nodes, Pods, Unhealthy
from gpushare.kube import client, resources
from gpushare.kube.reflector import Reflector
from gpushare.view import snapshot
from gpushare.view.snapshot import Node, Snapshot
from gpushare.view.why.pod_details import Pod

MOST_PUT = 1_000  # pods that came; if there are more, all are sorted
NOT_READ = "the cluster is being read"


Key = tuple[str, str, str]
"""Namespace, name and uid of a pod."""


class Ages(msgspec.Struct, frozen=True):
    """How old what is shown is. In seconds."""

    watch: float  # since the API server was last heard
    use: float | None  # since the newest figures of GPUs were read; None: there are none
    synced: bool  # everything was read once, and is still valid
    failure: str  # why the API server is not heard, in one sentence; empty: it is


class Live:
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.ledger, self.numbers = Ledger(), Numbers()
        self.version = 0  # grows with every change of nodes and of pods that ask for GPUs
        self._now = now
        self._touched: set[str] = set()
        self.pods = Pods(self.ledger, self.numbers, self._touch)
        self.nodes = Nodes(self.ledger, self._touch)
        self.doing = Doing(self._touched.add, now)
        self.unhealthy = Unhealthy(self.nodes)
        self._kept_at = -1  # the version of which it is known what is kept for pods
        self._order: list[Key] = []
        self._sorted_pods: list[Any] = []
        self._asking: list[Any] = []
        self._sorted_nodes: list[Any] = []
        self._watches: dict[str, Reflector[Any]] = {}

    # What the watches bring

    async def run(self, api: client.Api) -> None:
        """Follows the cluster, for ever."""
        self._watches = {
            "nodes": Reflector(api, resources.NODES, Node, self.nodes, key=_name),
            "pods": Reflector(api, resources.PODS, Pod, self.pods, key=_uid),
        }
        optional: list[Reflector[Any]] = [
            Reflector(api, resources.GPU_NODES, GpuNode, self.doing, key=_name, optional=True),
            Reflector(
                api, resources.CONFIG_MAPS, objects.ConfigMap, self.unhealthy, key=_name,
                namespace=names.UNHEALTHY_NAMESPACE, optional=True,
            ),
        ]  # fmt: skip
        async with asyncio.TaskGroup() as tasks:
            for reflector in (*self._watches.values(), *optional):
                tasks.create_task(reflector.run())

    def ages(self) -> Ages:
        watches = self._watches.values()
        newest = self.doing.newest
        use = max(self._now() - newest, 0.0) if newest is not None else None
        failed = next((str(watch.failure) for watch in watches if watch.failure is not None), "")
        synced = bool(watches) and all(watch.synced for watch in watches)
        age = max((watch.age() for watch in watches), default=0.0)
        return Ages(age, use, synced, failed or ("" if synced else NOT_READ))

    def take_touched(self) -> set[str]:
        """The nodes whose figures may be others than when this was last asked."""
        self._settle_kept()
        touched = set(self._touched)
        self._touched.clear()
        return touched

    # What others read

    def snapshot(self) -> Snapshot:
        """The cluster now. Its ledger is the live one: read it before the next await, and change nothing."""
        self._settle_kept()
        self._sort()
        pods, asking = self._sorted_pods, self._asking
        return Snapshot(self._sorted_nodes, pods, self.ledger, asking, self._now(), self.doing.by_node)

    def isolated(self) -> Snapshot:
        """The same with a ledger of its own, which may be changed."""
        return self.isolating()()

    def isolating(self) -> Callable[[], Snapshot]:
        """Makes that when it is called, which takes long with many pods: it may be called in a thread."""
        self._sort()
        nodes, pods, now = self._sorted_nodes, self._sorted_pods, self._now()
        unhealthy, doing = dict(self.nodes.unhealthy()), dict(self.doing.by_node)

        def build() -> Snapshot:
            built = snapshot.build(nodes, pods, now)
            built.doing = doing
            for node in nodes:
                listed = unhealthy.get(node.metadata.name)
                facts = node_gpus.read(node, listed, as_aliyun=node_gpus.contradicts(node)) if listed else None
                if facts is not None:
                    built.ledger.set_node(facts)
            return built

        return build

    def waiting(self) -> Snapshot:
        """The cluster with those pods only that have no node, and those that have GPUs by count: all that counts for
        what waits."""
        self._settle_kept()
        if self.nodes.changed:
            self._sort()
        there = [pod for on_node in self.pods.buyers.values() for pod in on_node.values()]
        unbound = [self.pods.by_uid[uid] for uid in self.pods.unbound]
        asking = [self.pods.asking[uid] for uid in self.pods.unbound if uid in self.pods.asking]
        return Snapshot(self._sorted_nodes, [*unbound, *there], self.ledger, asking, self._now())

    def pod_number(self, uid: str) -> int:
        """How the stream calls this pod."""
        return self.numbers.pod(uid)

    def _touch(self, node: str) -> None:
        self.version += 1
        if node:
            self._touched.add(node)

    def _settle_kept(self) -> None:
        """What the annotations of waiting pods say is kept for them holds only while their node can take them."""
        if self._kept_at == self.version:
            return
        self._kept_at = self.version
        if self.pods.kept or self.ledger.has_promises():
            for uid in [kept.pod.uid for kept in self.ledger.kept()]:
                self.ledger.keep_no_longer(uid)
            patience.show(self.ledger, self.pods.kept.values())

    def _sort(self) -> None:
        pods = self.pods
        if self.nodes.changed:
            self._sorted_nodes = [node for _, node in sorted(self.nodes.by_name.items())]
            self.nodes.changed = False
        if pods.changed:
            self._order = _sorted(self._order, pods)
            self._sorted_pods = [pods.by_uid[uid] for _, _, uid in self._order]
            self._asking = [pods.asking[uid] for _, _, uid in self._order if uid in pods.asking]
            pods.came.clear()
        pods.went = pods.changed = False


def _sorted(keys: list[Key], pods: Pods) -> list[Key]:
    """By namespace and name. Few come at a time: then they are put where they belong."""
    new = [(pods.by_uid[uid].metadata, uid) for uid in pods.came if uid in pods.by_uid]
    come = [(meta.namespace, meta.name, uid) for meta, uid in new]
    if pods.went:
        keys = [key for key in keys if key[2] in pods.by_uid]
    if len(come) > MOST_PUT:
        return sorted({*keys, *come})
    for key in come:
        at = bisect.bisect_left(keys, key)
        if keys[at : at + 1] != [key]:  # it went and came back
            keys.insert(at, key)
    return keys


def _name(item: Any) -> str:
    name: str = item.metadata.name
    return name


def _uid(item: Any) -> str:
    uid: str = item.metadata.uid
    return uid
