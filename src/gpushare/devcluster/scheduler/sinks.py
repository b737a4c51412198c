"""The watches of the stand-in scheduler: from pods and nodes as the API server shows them to its queue and its cache.

Fed by the reflectors that `scheduler` runs; see `kube.reflector.Sink`. Every change is also told to the queue, which
knows whom it could help.
"""

from collections.abc import Callable, Collection, Set

from gpushare.core.facts.intree import Node, Pod
from gpushare.core.facts.request import FINISHED
from gpushare.devcluster.scheduler import hints
from gpushare.devcluster.scheduler.cache import Cache
from gpushare.devcluster.scheduler.hints import Change
from gpushare.devcluster.scheduler.queue import Queue


class Picture:
    """The queue and the cache; `stirred` is called whenever somebody may have to be tried."""

    def __init__(self, queue: Queue, cache: Cache, clock: Callable[[], float], stirred: Callable[[], None]) -> None:
        self.queue, self.cache = queue, cache
        self._clock, self._stirred = clock, stirred

    def wants(self, pod: Pod) -> None:
        """It is to be scheduled."""
        self.queue.put(pod, self._clock())
        self._stirred()

    def happened(self, change: Change) -> None:
        self.queue.happened(change, self._clock())
        self._stirred()


class Pods:
    """`schedulers`: the names we go by. Pods of others count only once they are bound."""

    def __init__(self, picture: Picture, schedulers: Collection[str]) -> None:
        self._picture, self._queue, self._cache = picture, picture.queue, picture.cache
        self._schedulers = schedulers

    def upsert(self, pod: Pod) -> None:
        node = pod.spec.node_name
        if pod.status.phase in FINISHED or (pod.metadata.deletion_timestamp and not node):
            self._gone(pod.metadata.uid)  # one that ends unbound will not be bound any more
        elif node:
            self._queue.drop(pod.metadata.uid)
            self._cache.put(pod, node)
            self._picture.happened(hints.PodCame())
        elif pod.spec.scheduler_name in self._schedulers:
            self._picture.wants(pod)

    def remove(self, pod: Pod) -> None:
        self._gone(pod.metadata.uid)

    def relisted(self, kept: Set[str]) -> None:
        for uid in (self._queue.pods.keys() | self._cache.pods.keys()) - kept:
            self._gone(uid)

    def _gone(self, uid: str) -> None:
        self._queue.drop(uid)
        if self._cache.drop(uid):
            self._picture.happened(hints.PodLeft())


class Nodes:
    def __init__(self, picture: Picture) -> None:
        self._picture, self._nodes = picture, picture.cache.nodes

    def upsert(self, node: Node) -> None:
        old = self._nodes.get(node.metadata.name)
        self._nodes[node.metadata.name] = node
        if old is None or hints.matters(old, node):
            self._picture.happened(hints.NodeChanged(old, node))

    def remove(self, node: Node) -> None:
        self._gone(node.metadata.name)

    def relisted(self, kept: Set[str]) -> None:
        for name in self._nodes.keys() - kept:
            self._gone(name)

    def _gone(self, name: str) -> None:
        old = self._nodes.pop(name, None)
        if old is not None:
            self._picture.happened(hints.NodeChanged(old, None))
