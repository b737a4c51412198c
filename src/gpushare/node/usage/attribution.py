"""Which container uses how much of which GPU: what pods were given, joined with the processes that the driver shows.

Pure. A container counts on a GPU if it was given a part of it. What no such container accounts for is unattributed: a
process outside all pods, or of a pod that was not given this GPU. What is not known is None, never 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import units
from gpushare.core.facts.model import NodeFacts, Role
from gpushare.gpu.sample import Pass, Process, Sample
from gpushare.node.pods import NodePod, NodePods
from gpushare.node.publishing.desired import Held, Offered
from gpushare.node.usage.model import ContainerUse, GpuUse, Owner


class Who(NamedTuple):
    """A container."""

    pod_uid: str
    container: str


class Index(NamedTuple):
    """Containers by their ids, and pods by what cgroups call them."""

    containers: dict[str, Who]
    pods: dict[str, str]  # their uids


def joined(
    offered: Offered,
    pods: NodePods,
    sampled: Pass | None,
    owners: Mapping[int, Owner] | None,
    buses: Mapping[str, str],
    kept: "Given",
) -> tuple[GpuUse, ...]:
    """All GPUs that this node publishes. `sampled` is None if there are no figures, or old ones; `owners`, if nobody
    can say whose a process is. `kept`: from the pass before."""
    facts, size = offered.facts, units.BYTES_IN[offered.facts.unit]
    samples = {sample.uuid: sample for sample in sampled.gpus} if sampled is not None else {}
    given = kept.on(pods, facts)
    index = _index(pods, kept.containers)
    gpus = []
    for at, gpu in enumerate(facts.gpus):
        held, sample = offered.held.get(gpu.uuid, Held()), samples.get(gpu.uuid)
        use_of_gpu = GpuUse(
            gpu.index, gpu.uuid, gpu.model, gpu.total * size, None if facts.sold else held.units * size, facts.slots,
            held.slots, gpu.healthy, gpu.why, buses.get(gpu.uuid, ""), sample, tuple(given.get(at, {}).values()),
        )  # fmt: skip
        gpus.append(_with_processes(use_of_gpu, given.get(at, {}), index, facts, pods, owners))
    return tuple(gpus)


# What containers were given


class Given:
    """Kept from pass to pass: a pod is read again only if it has changed, or what its node publishes. That is most of
    what a pass would cost."""

    def __init__(self) -> None:
        self.containers: dict[str, Who] = {}  # by their ids, as of the last `on`
        self._facts: NodeFacts | None = None
        self._read: dict[str, _Read] = {}  # by uid

    def on(self, pods: NodePods, facts: NodeFacts) -> dict[int, dict[Who, ContainerUse]]:
        """By the position of the GPU."""
        before = self._read if facts == self._facts else {}
        self._facts, self._read = facts, {}
        on: dict[int, dict[Who, ContainerUse]] = {}
        for uid, node_pod in pods.pods.items():
            known = before.get(uid)
            if known is None or known.pod is not node_pod:
                known = _Read(node_pod, _given(node_pod, facts), _started(node_pod))
            self._read[uid] = known
            for gpu, use in known.given:
                on.setdefault(gpu, {})[Who(uid, use.container)] = use
        self.containers = {id_: who for known in self._read.values() for id_, who in known.started.items()}
        return on


class _Read(NamedTuple):
    """What was read of a pod."""

    pod: NodePod
    given: list[tuple[int, ContainerUse]]  # by the position of the GPU
    started: dict[str, Who]  # by the id of the container


def _started(node_pod: NodePod) -> dict[str, Who]:
    uid, statuses = node_pod.facts.uid, node_pod.pod.statuses()
    return {status.id: Who(uid, name) for name, status in statuses.items() if status.id}


def _given(node_pod: NodePod, facts: NodeFacts) -> list[tuple[int, ContainerUse]]:
    """The containers of a pod, by the position of each of their GPUs. An init container counts only while it runs."""
    pod = node_pod.facts
    return [
        (gpu, ContainerUse(pod.namespace, pod.name, pod.uid, share.container, size, share.kind.exclusive))
        for share, gpu, size in (() if pod.finished else pod_gpus.given(pod, facts))
        if share.role is not Role.INIT or _runs(node_pod, share.container)
    ]


def _runs(node_pod: NodePod, container: str) -> bool:
    status = node_pod.pod.statuses().get(container)
    return status is not None and status.is_running


def _index(pods: NodePods, started: Mapping[str, Who]) -> Index:
    sold = {one.id: Who(uid, one.container) for uid, named in pods.sold.items() for one in named}
    return Index({**started, **sold}, pods.by_kubelets_uid())


# What they use


def _with_processes(
    gpu: GpuUse,
    given: Mapping[Who, ContainerUse],
    index: Index,
    facts: NodeFacts,
    pods: NodePods,
    owners: Mapping[int, Owner] | None,
) -> GpuUse:
    if gpu.sample is None or gpu.sample.processes is None or owners is None:
        return gpu
    of: dict[Who | None, list[Process]] = {}
    known = {index.containers.get(owners[p.pid].container_id) for p in gpu.sample.processes if p.pid in owners}
    for process in gpu.sample.processes:
        of.setdefault(_who(owners.get(process.pid), given, index, known), []).append(process)
    if facts.sold:
        given = _bought(gpu, of, facts, pods)
    containers = tuple([_used(use, of.get(who, ())) for who, use in given.items()])
    return msgspec.structs.replace(
        gpu,
        granted=gpu.total if facts.sold and any(use.whole for use in containers) else gpu.granted,
        containers=containers,
        unattributed=_unattributed(gpu.sample, containers),
        unknown_processes=len(gpu.sample.processes) - sum(len(use.pids or ()) for use in containers),
    )


def _who(owner: Owner | None, given: Iterable[Who], index: Index, known: set[Who | None]) -> Who | None:
    """The container of a process. kubelet writes the id of a restarted container only some moments later. Until then
    the process is of the only container of its pod on this GPU, if no process of that one is known there."""
    if owner is None:
        return None
    uid = index.pods.get(owner.pod_uid)
    if found := index.containers.get(owner.container_id):
        return found if found.pod_uid == uid or not owner.pod_uid else None
    candidates = [who for who in given if who.pod_uid == uid]
    return candidates[0] if len(candidates) == 1 and candidates[0] not in known else None


def _bought(gpu: GpuUse, of: Iterable[Who | None], facts: NodeFacts, pods: NodePods) -> dict[Who, ContainerUse]:
    """The containers on a GPU that is sold by count: kubelet chose it, so only its processes tell who has it."""
    sold = {offer.resource: offer for offer in facts.sold}
    bought = {}
    for who in of:
        named = next((n for n in pods.sold.get(who.pod_uid, ()) if n.container == who.container), None) if who else None
        offer = next((sold[name] for name in named.asks if name in sold), None) if named else None
        if who is not None and named is not None and offer is not None:
            whole = offer.replicas == 1
            bought[who] = ContainerUse(
                named.namespace, named.pod, who.pod_uid, who.container, gpu.total if whole else None, whole
            )
    return bought


def _used(use: ContainerUse, processes: Sequence[Process]) -> ContainerUse:
    memory, sm = [p.memory for p in processes], [p.sm for p in processes]
    return msgspec.structs.replace(
        use,
        used=sum([m for m in memory if m is not None]) if None not in memory else None,
        sm=min(sum([s for s in sm if s is not None]) / 100, 1.0) if None not in sm else None,
        pids=tuple([process.pid for process in processes]),
    )


def _unattributed(sample: Sample, containers: Iterable[ContainerUse]) -> int | None:
    used = [use.used for use in containers]
    if sample.memory_used is None or None in used:
        return None
    return max(sample.memory_used - sum([u for u in used if u is not None]), 0)
