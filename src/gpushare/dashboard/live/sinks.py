"""From watches to one ledger: pods, nodes, what GPUs do, and the ConfigMaps that list unhealthy GPUs.

Each class is the sink of one reflector. What they make of it is what `view.snapshot.build` would make of the same
objects: nothing is decided here, so nothing is remembered beside what the API server showed last.
"""

from collections.abc import Callable, Set

import msgspec

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import intree, names, objects, request, vitals
from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.vitals import FullStatus
from gpushare.core.ledger.ledger import Ledger
from gpushare.dashboard.live.numbers import Numbers
from gpushare.dashboard.live.slim import Sharing
from gpushare.view import sold
from gpushare.view.snapshot import Node
from gpushare.view.why.pod_details import Pod

Touch = Callable[[str], None]
"""Called with the name of a node whose figures may be others now; empty: with a pod that has none."""


class GpuNode(objects.Struct):
    """One whose status is not read yet: a status that is not as it should be must not stop the watch."""

    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    status: msgspec.Raw = msgspec.Raw(b"{}")


class Pods:
    def __init__(self, ledger: Ledger, numbers: Numbers, touch: Touch) -> None:
        self.by_uid: dict[str, Pod] = {}
        self.asking: dict[str, PodFacts] = {}  # those that ask for GPU memory
        self.unbound: dict[str, None] = {}  # those without a node
        self.kept: dict[str, PodFacts] = {}  # those with GPUs kept for them
        self.buyers: dict[str, dict[str, Pod]] = {}  # by node: those that have GPUs by count
        self.came: dict[str, None] = {}  # uids of those that are still there, since this was last emptied
        self.went = False  # whether any went, since this was last made False
        self.changed = False  # the same: anything of any pod
        self._ledger, self._numbers, self._touch = ledger, numbers, touch
        self._sharing = Sharing()

    def upsert(self, item: Pod) -> None:
        uid, facts = item.metadata.uid, request.facts(item, None)
        before, pod = self.by_uid.get(uid), self._sharing.pod(item)
        self.changed = True
        if before is None:
            self.came[uid] = None
        self.by_uid[uid] = pod
        if pod.spec.node_name:
            self.unbound.pop(uid, None)
        else:
            self.unbound[uid] = None
        self._sell(before, pod)
        self._observe(uid, self._sharing.facts(facts) if facts.request is not None else None)

    def remove(self, item: Pod) -> None:
        self._forget(item.metadata.uid)

    def relisted(self, kept: Set[str]) -> None:
        for uid in self.by_uid.keys() - kept:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        before = self.by_uid.pop(uid, None)
        if before is not None:
            self.went = self.changed = True
            self.unbound.pop(uid, None)
            self.came.pop(uid, None)
            self._sell(before, None)
            self._observe(uid, None)
            self._numbers.forget(uid)

    def _observe(self, uid: str, pod: PodFacts | None) -> None:
        """Forgotten first: the ledger of one who decides also remembers where a pod was before, and what was refused.
        The reflector has made sure that this is no older state."""
        before = self.asking.pop(uid, None)
        if pod is not None:
            self.asking[uid] = pod
        if pod == before:
            return
        if before is not None:
            self._ledger.forget(uid)
            self.kept.pop(uid, None)
            self._touch(before.node)
        if pod is not None:
            self._ledger.observe(pod, 0.0)
            if pod.annotation(names.KEPT) is not None:
                self.kept[uid] = pod
            self._touch(pod.node)

    def _sell(self, before: Pod | None, now: Pod | None) -> None:
        """Pods that ask by count, on their node; their amounts are counted when somebody asks."""
        for pod, there in ((before, False), (now, True)):
            node = pod.spec.node_name if pod is not None else None
            if pod is None or not node or not _may_buy(pod):
                continue
            if there:
                self.buyers.setdefault(node, {})[pod.metadata.uid] = pod
            else:
                self.buyers.get(node, {}).pop(pod.metadata.uid, None)
            self._touch(node)


def _may_buy(pod: Pod) -> bool:
    return any(
        sold.is_sold(name)
        for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        if container.resources is not None
        for name in {**(container.resources.limits or {}), **(container.resources.requests or {})}
    )


class Nodes:
    def __init__(self, ledger: Ledger, touch: Touch) -> None:
        self.by_name: dict[str, intree.Node] = {}
        self.changed = False  # since this was last made False
        self._ledger, self._touch = ledger, touch
        self._unhealthy: dict[str, frozenset[int]] = {}

    def upsert(self, item: Node) -> None:
        name = item.metadata.name
        item.metadata.resource_version = ""  # all that is new in most heartbeats
        if self.by_name.get(name) != item:
            self.by_name[name] = item
            self._settle(name)

    def remove(self, item: Node) -> None:
        self._forget(item.metadata.name)

    def relisted(self, kept: Set[str]) -> None:
        for name in self.by_name.keys() - kept:
            self._forget(name)

    def set_unhealthy(self, name: str, gpus: frozenset[int]) -> None:
        """What the ConfigMap of a node says; empty if there is none."""
        if self._unhealthy.get(name, frozenset()) != gpus:
            self._unhealthy[name] = gpus
            if not gpus:
                del self._unhealthy[name]
            if name in self.by_name:
                self._settle(name)

    def unhealthy(self) -> dict[str, frozenset[int]]:
        """The GPUs that ConfigMaps list, by node."""
        return self._unhealthy

    def _settle(self, name: str) -> None:
        node = self.by_name[name]
        listed = self._unhealthy.get(name, frozenset())
        facts = node_gpus.read(node, listed, as_aliyun=node_gpus.contradicts(node))
        if facts is None:
            self._ledger.remove_node(name)
        else:
            self._ledger.set_node(facts)
        self.changed = True
        self._touch(name)

    def _forget(self, name: str) -> None:
        if self.by_name.pop(name, None) is not None:
            self._ledger.remove_node(name)
            self.changed = True
            self._touch(name)


class Doing:
    """What GPUs do. One status that cannot be read hides no other, and is unknown."""

    def __init__(self, touch: Touch, now: Callable[[], float]) -> None:
        self.by_node: dict[str, FullStatus] = {}
        self.newest: float | None = None  # when the newest figures were read, in seconds since 1970
        self._touch, self._now = touch, now

    def upsert(self, item: GpuNode) -> None:
        name = item.metadata.name
        try:
            status = _status.decode(item.status)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._drop(name)
            return
        self.by_node[name] = status
        now = self._now()
        age = vitals.age(status, now)
        if age is not None and vitals.is_fresh(status, now):
            self.newest = max(self.newest or 0.0, min(now - age, now))
        self._touch(name)

    def remove(self, item: GpuNode) -> None:
        self._drop(item.metadata.name)

    def relisted(self, kept: Set[str]) -> None:
        for name in self.by_node.keys() - kept:
            self._drop(name)

    def _drop(self, name: str) -> None:
        if self.by_node.pop(name, None) is not None:
            self._touch(name)


class Unhealthy:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def upsert(self, item: objects.ConfigMap) -> None:
        if node := _node_of(item.metadata.name):
            self._nodes.set_unhealthy(node, node_gpus.unhealthy(item))

    def remove(self, item: objects.ConfigMap) -> None:
        if node := _node_of(item.metadata.name):
            self._nodes.set_unhealthy(node, frozenset())

    def relisted(self, kept: Set[str]) -> None:
        for node in [node for node in self._nodes.unhealthy() if names.UNHEALTHY_PREFIX + node not in kept]:
            self._nodes.set_unhealthy(node, frozenset())


def _node_of(name: str) -> str:
    return name.removeprefix(names.UNHEALTHY_PREFIX) if name.startswith(names.UNHEALTHY_PREFIX) else ""


_status = msgspec.json.Decoder(FullStatus)
