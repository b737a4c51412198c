"""The watches of the stand-in scheduler: they put pods and nodes into its queue and its cache (`kube.reflector.Sink`).

The queue also learns of every change, because it knows which pods the change could help.
"""

from collections.abc import Callable, Collection, Set

from gpushare.core.facts.intree import Node, Pod
from gpushare.core.facts.objects import FINISHED
from gpushare.devcluster.scheduler import hints
from gpushare.devcluster.scheduler.cache import Cache
from gpushare.devcluster.scheduler.hints import Change
from gpushare.devcluster.scheduler.queue import Queue


class Cluster:
    """Queue and cache together. `changed` is called whenever a pod may have to be tried."""

    def __init__(self, queue: Queue, cache: Cache, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self.queue, self.cache = queue, cache
        self._clock, self._changed = clock, changed

    def put(self, pod: Pod) -> None:
        """A pod to be scheduled."""
        self.queue.put(pod, self._clock())
        self._changed()

    def happened(self, change: Change) -> None:
        self.queue.happened(change, self._clock())
        self._changed()


class Pods:
    """`schedulers`: the scheduler's own names. Pods of other schedulers count once they are bound."""

    def __init__(self, cluster: Cluster, schedulers: Collection[str]) -> None:
        self._cluster, self._queue, self._cache = cluster, cluster.queue, cluster.cache
        self._schedulers = schedulers

    def upsert(self, pod: Pod) -> None:
        node = pod.spec.node_name
        if pod.status.phase in FINISHED or (pod.metadata.deletion_timestamp and not node):
            self._gone(pod.metadata.uid)  # a pod that ends unbound is never bound
        elif node:
            self._queue.drop(pod.metadata.uid)
            self._cache.put(pod, node)
            self._cluster.happened(hints.PodCame())
        elif pod.spec.scheduler_name in self._schedulers:
            self._cluster.put(pod)

    def remove(self, pod: Pod) -> None:
        self._gone(pod.metadata.uid)

    def relisted(self, kept: Set[str]) -> None:
        for uid in (self._queue.pods.keys() | self._cache.pods.keys()) - kept:
            self._gone(uid)

    def _gone(self, uid: str) -> None:
        self._queue.drop(uid)
        if self._cache.drop(uid):
            self._cluster.happened(hints.PodLeft())


class Nodes:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._nodes = cluster, cluster.cache.nodes

    def upsert(self, node: Node) -> None:
        old = self._nodes.get(node.metadata.name)
        self._nodes[node.metadata.name] = node
        if old is None or hints.matters(old, node):
            self._cluster.happened(hints.NodeChanged(old, node))

    def remove(self, node: Node) -> None:
        self._gone(node.metadata.name)

    def relisted(self, kept: Set[str]) -> None:
        for name in self._nodes.keys() - kept:
            self._gone(name)

    def _gone(self, name: str) -> None:
        old = self._nodes.pop(name, None)
        if old is not None:
            self._cluster.happened(hints.NodeChanged(old, None))
