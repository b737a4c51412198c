"""The GPUs of one node as rows: what is given out, what they do, and who is there.

Pure. Rows of a pod's containers are told apart where each was measured and what they were given adds up to what the
ledger charges; else a pod has one row. A node that sells by count has no such amounts: there only what was measured is
known.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from gpushare.core.explain import inspected, measured
from gpushare.core.facts import intree, vitals
from gpushare.core.facts.model import Gpu
from gpushare.core.facts.vitals import ContainerVitals, FullStatus, GpuAndContainers
from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.answers.body import Body, Number, mib, names
from gpushare.view import sold, usage, wording
from gpushare.view.snapshot import Snapshot
from gpushare.view.sold import SoldUse
from gpushare.view.usage import NodeUse, PodUse
from gpushare.view.why import pod_details

OverFor = Callable[[str, str, str], float | None]
"""For how many seconds a pod has used too much of a GPU: by node, key of the GPU and uid; None: unknown."""


def not_known(node: str, key: str, uid: str) -> float | None:
    """Where nobody remembers."""
    return None


class Share(Body):
    """What a pod, or one of its containers, has of a GPU. Another team's has no names."""

    namespace: str | None
    pod: str | None
    number: int
    container: str | None
    granted: int | None
    used: int | None = None
    sm: int | None = None  # percent of the GPU's time
    over: int = 0  # MiB above what it was given
    since: str | None = None  # when kubelet took the pod
    over_for: int | None = None  # seconds


class GpuRow(Body):
    index: int
    uuid: str
    model: str
    total: int
    granted: int | None
    free: int | None  # that is not given out; an unhealthy GPU's is not given out either
    healthy: bool
    why: str  # it is not
    used: int | None = None
    util: int | None = None
    temp: int | None = None
    temp_limit: int | None = None
    power: int | None = None
    power_limit: int | None = None
    unattributed: int | None = None  # used by no known container
    slots: int = 0
    used_slots: int = 0
    shares: list[Share] = msgspec.field(default_factory=list)


class OneNode(NamedTuple):
    """A node, its pods, and what is known of both. `use` is None if it shares no GPU memory."""

    node: intree.Node
    pods: dict[str, intree.Pod]  # by uid
    use: NodeUse | None
    selling: list[SoldUse]
    status: FullStatus | None  # what it publishes of what its GPUs do, old or not
    cluster: Snapshot

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def fresh(self) -> FullStatus | None:
        known = self.status is not None and vitals.is_fresh(self.status, self.cluster.now)
        return self.status if known else None


def find(cluster: Snapshot, name: str) -> OneNode | None:
    """One node of the cluster; None if there is none of that name."""
    node = next((one for one in cluster.nodes if one.metadata.name == name), None)
    if node is None:
        return None
    there = [pod for pod in cluster.pods if pod.spec.node_name == name]
    alone = Snapshot([node], there, cluster.ledger, [], cluster.now, cluster.doing)
    use = next(iter(usage.nodes(alone)), None)
    pods = {pod.metadata.uid: pod for pod in there}
    return OneNode(node, pods, use, sold.uses(alone), cluster.doing.get(name), cluster)


def rows(one: OneNode, number: Number, allowed: Allowed, over_for: OverFor = not_known) -> list[GpuRow]:
    """In the order of the node's own list. `number`: how the stream calls a pod."""
    facts = one.cluster.ledger.facts(one.name)
    if facts is None:
        return []
    fresh, factor = one.fresh, mib(facts.unit)
    doing = measured.by_index(fresh.gpus or (), facts) if fresh is not None else {}
    made = [_row(gpu, factor, doing.get(gpu.index)) for gpu in facts.gpus]
    naming = _Naming(one, number, allowed, over_for)
    if one.use is None:
        for row in made:
            row.granted = row.free = None
            row.shares = list(naming.buyers(row, doing.get(row.index)))
        return made
    for row, gpu in zip(made, one.use.gpus, strict=True):
        row.free = gpu.free * factor
        row.granted = row.total - row.free
        row.slots, row.used_slots = gpu.slots, gpu.used_slots
        row.shares = list(naming.shares(row, factor, one.use, doing.get(row.index)))
    return made


def _row(gpu: Gpu, factor: int, doing: GpuAndContainers | None) -> GpuRow:
    row = GpuRow(gpu.index, gpu.uuid, gpu.model, gpu.total * factor, None, None, gpu.healthy, gpu.why)
    if doing is not None:
        row.uuid, row.model = gpu.uuid or doing.uuid, gpu.model or doing.model
        row.used, row.util, row.unattributed = doing.used_mib, doing.utilization, doing.unattributed_mib
        row.temp, row.temp_limit = doing.temperature, doing.temperature_limit
        row.power, row.power_limit = doing.power_watts, doing.power_limit_watts
    return row


class _Naming:
    """Makes shares, with the names that the reader may see."""

    def __init__(self, one: OneNode, number: Number, allowed: Allowed, over_for: OverFor) -> None:
        self._one, self._number, self._allowed, self._remembered = one, number, allowed, over_for
        self._published = _over_for(one.fresh, one.cluster.now) if one.fresh is not None else None
        self._facts = one.cluster.ledger.facts(one.name)
        self._keys = {gpu.index: gpu.key for gpu in self._facts.gpus} if self._facts is not None else {}

    def shares(self, row: GpuRow, factor: int, use: NodeUse, doing: GpuAndContainers | None) -> Iterator[Share]:
        """Those of a GPU; those that the reader may see come first, by namespace and name."""
        there = [pod for pod in use.pods if row.index in pod.on]
        there.sort(key=lambda pod: (self._is_hidden(pod), pod.pod.namespace, pod.pod.name))
        for pod in there:
            containers = [one for one in doing.containers if one.uid == pod.pod.uid] if doing is not None else []
            yield from self._of_pod(row, pod, pod.on[row.index] * factor, containers)

    def buyers(self, row: GpuRow, doing: GpuAndContainers | None) -> Iterator[Share]:
        """What was measured on a GPU that is sold by count."""
        for one in doing.containers if doing is not None else ():
            if one.uid in self._one.pods:
                yield self._share(row, (one.uid, one.namespace, one.pod), one.granted_mib, [one], one.container)

    def _of_pod(self, row: GpuRow, pod: PodUse, granted: int, containers: Sequence[ContainerVitals]) -> Iterator[Share]:
        who = (pod.pod.uid, pod.pod.namespace, pod.pod.name)
        if len(containers) > 1 and sum(one.granted_mib or 0 for one in containers) == granted:
            for one in containers:
                yield self._share(row, who, one.granted_mib, [one], one.container)
            return
        known = [one.container for one in containers] or self._users(pod, row.index)
        yield self._share(row, who, granted, containers, known[0] if len(known) == 1 else None)

    def _share(
        self,
        row: GpuRow,
        who: tuple[str, str, str],
        granted: int | None,
        containers: Sequence[ContainerVitals],
        container: str | None,
    ) -> Share:
        uid, namespace, name = who
        shown, pod = names(namespace, name, self._allowed)
        use = measured.use(containers)
        times = [one.sm_percent for one in containers if one.sm_percent is not None]
        return Share(
            shown,
            pod,
            self._number(uid),
            container if pod is not None else None,
            granted,
            used=use.used if use is not None else None,
            sm=sum(times) if times and len(times) == len(containers) else None,
            over=use.over if use is not None else 0,
            since=_since(self._one.pods.get(uid)),
            over_for=self._over_for(row, uid, containers) if use is not None and use.over else None,
        )

    def _over_for(self, row: GpuRow, uid: str, containers: Sequence[ContainerVitals]) -> int | None:
        """The node may know it from before we were started, and we know it while the node does not tell whose it is."""
        told = [self._remembered(self._one.name, self._keys[row.index], uid)]
        told += [self._published] if any(one.over_use for one in containers) else []
        known = [seconds for seconds in told if seconds is not None]
        return int(max(known)) if known else None

    def _is_hidden(self, pod: PodUse) -> bool:
        return names(pod.pod.namespace, pod.pod.name, self._allowed)[1] is None

    def _users(self, pod: PodUse, index: int) -> list[str]:
        """The containers that see a GPU, as annotations say it."""
        if self._facts is None:
            return []
        return [name for name, gpus in inspected.gpus_of(pod.pod, self._facts).items() if index in gpus]


def _since(pod: intree.Pod | None) -> str | None:
    return pod.status.start_time if pod is not None and isinstance(pod.status, pod_details.PodStatus) else None


def _over_for(status: FullStatus, now: float) -> float | None:
    """For how many seconds the only container that uses too much has done so. Of several the node does not tell which
    was first."""
    over = [one for gpu in status.gpus or () for one in gpu.containers if one.over_use]
    begun = [one for one in status.conditions or () if one.type == vitals.OVER_USE and one.status == "True"]
    at = wording.timestamp(begun[0].last_transition_time or "") if begun and len(over) == 1 else 0.0
    return max(now - at, 0.0) if at else None
