"""The operator's copy of the cluster. Each part calls `wake` when something changed that a decision reads.

A node's heartbeat is no such change, nor is the time in a pod's condition: of both only a projection is kept and
compared. So nothing happens while nothing happens.

What a write answers is put here, too, so that a pass sees its own writes. A watch may have been faster: then it has
shown something newer, or that the object is gone again, and that counts.
"""

from collections.abc import Callable, Set
from typing import Final

import msgspec

from gpushare.core.facts import names, objects
from gpushare.kube import models, stream
from gpushare.operator.managed import Metadata, Node
from gpushare.operator.seeing.keys import Key
from gpushare.operator.seeing.kinds import RENEWED
from gpushare.operator.seeing.models import Live, Pod, Policy
from gpushare.operator.status import node_problems, pod_problems
from gpushare.operator.status.facts import NodeFacts, PodFacts

Wake = Callable[[], None]

SOLD: Final = (*names.PINNED, names.NVIDIA_GPU)
OUR_ANNOTATIONS: Final = "gpushare.io/"
ORPHAN: Final = "orphan"  # the finalizer of kubectl delete --cascade=orphan: what the policy made is to stay as it is


class Policies:
    """All policies, by name. `orphaning`: those that are deleted without their objects, by uid. The garbage collector
    may be done with that before the next pass: then only the watch has shown that the objects are to stay."""

    def __init__(self, wake: Wake) -> None:
        self.found: dict[str, Policy] = {}
        self.orphaning: set[str] = set()
        self._wake = wake

    def put(self, answer: Policy) -> None:
        if _is_news(self.found.get(answer.name), answer):
            self.found[answer.name] = answer

    def upsert(self, item: Policy) -> None:
        self.found[item.name] = item
        if item.metadata.deletion_timestamp and ORPHAN in (item.metadata.finalizers or ()):
            self.orphaning.add(item.uid)
        self._wake()

    def remove(self, item: Policy) -> None:
        self.found.pop(item.name, None)
        self.orphaning.discard(item.uid)
        self._wake()

    def relisted(self, kept: Set[str]) -> None:
        self.found = {name: policy for name, policy in self.found.items() if name in kept}
        self._wake()


class Owned:
    """What the operator made, of all kinds. One sink for each kind and namespace fills it."""

    def __init__(self, wake: Wake) -> None:
        self.found: dict[Key, Live] = {}
        self.wake = wake
        self.gone = 0  # how often something was gone

    def of(self, kind: str, namespace: str) -> "OwnedSink":
        return OwnedSink(self, kind, namespace)

    def put(self, key: Key, answer: Live, gone: int) -> None:
        """`gone`: as it was before the request was sent. If something is gone since then it may be this one."""
        if _is_news(self.found.get(key), answer) or (key not in self.found and gone == self.gone):
            self.found[key] = answer


class OwnedSink:
    def __init__(self, owned: Owned, kind: str, namespace: str) -> None:
        self._owned, self._kind, self._namespace = owned, kind, namespace

    def upsert(self, item: Live) -> None:
        key = self._key(item)
        before = self._owned.found.get(key)
        self._owned.found[key] = item
        if before is None or (self._kind != RENEWED and _version(before) != _version(item)):
            self._owned.wake()

    def remove(self, item: Live) -> None:
        self._owned.found.pop(self._key(item), None)
        self._owned.gone += 1
        self._owned.wake()

    def relisted(self, kept: Set[str]) -> None:
        mine = [key for key in self._owned.found if (key.kind, key.namespace) == (self._kind, self._namespace)]
        for key in mine:
            if key.name not in kept:
                del self._owned.found[key]
        self._owned.gone += 1
        self._owned.wake()

    def _key(self, item: Live) -> Key:
        return Key(self._kind, item.metadata.namespace, item.metadata.name)


def _version(item: Live) -> str:
    return item.metadata.resource_version


class Nodes:
    """All nodes, by name, and what each says about itself."""

    def __init__(self, wake: Wake) -> None:
        self.found: dict[str, Node] = {}
        self.facts: dict[str, NodeFacts] = {}
        self._wake = wake

    def put(self, answer: Node) -> None:
        if _is_news(self.found.get(answer.metadata.name), answer):
            self.upsert(answer)

    def upsert(self, item: Node) -> None:
        name, slim = item.metadata.name, _slim(item)
        before = self.found.get(name)
        self.found[name] = slim
        if before is None or _matters(before) != _matters(slim):
            self.facts[name] = node_problems.facts(slim)
            self._wake()

    def remove(self, item: Node) -> None:
        self.found.pop(item.metadata.name, None)
        self.facts.pop(item.metadata.name, None)
        self._wake()

    def relisted(self, kept: Set[str]) -> None:
        for name in [name for name in self.found if name not in kept]:
            del self.found[name], self.facts[name]
        self._wake()


class Pods:
    """Pods of what the operator made, by uid."""

    def __init__(self, wake: Wake) -> None:
        self.found: dict[str, PodFacts] = {}
        self._wake = wake

    def upsert(self, item: Pod) -> None:
        facts = pod_problems.facts(item)
        if self.found.get(item.metadata.uid) != facts:
            self.found[item.metadata.uid] = facts
            self._wake()

    def remove(self, item: Pod) -> None:
        self.found.pop(item.metadata.uid, None)
        self._wake()

    def relisted(self, kept: Set[str]) -> None:
        self.found = {uid: facts for uid, facts in self.found.items() if uid in kept}
        self._wake()


def _is_news(known: stream.Object | None, answer: stream.Object) -> bool:
    """False also if it is not known: it may be gone by now."""
    if known is None:
        return False
    return models.number(answer.metadata.resource_version) > models.number(known.metadata.resource_version)


def _slim(node: Node) -> Node:
    """Without what says nothing to the operator: thousands are kept."""
    metadata = node.metadata
    annotations = {key: value for key, value in (metadata.annotations or {}).items() if key.startswith(OUR_ANNOTATIONS)}
    capacity = {name: amount for name, amount in (node.status.capacity or {}).items() if name in SOLD}
    return Node(
        metadata=Metadata(
            name=metadata.name, uid=metadata.uid, resource_version=metadata.resource_version,
            annotations=annotations or None, labels=metadata.labels, managed_fields=metadata.managed_fields,
        ),
        status=objects.NodeStatus(capacity=capacity or None),
        spec=node.spec,
    )  # fmt: skip


def _matters(node: Node) -> tuple[object, ...]:
    without_version = msgspec.structs.replace(node.metadata, resource_version="")
    return without_version, node.status.capacity, node.spec.taints
