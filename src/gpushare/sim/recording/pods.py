"""What a pod of a live cluster asks, and when it came and ended, as a trace has it.

Containers are counted together. If several of them ask for GPUs, the pod gets as many GPUs, and on each the same part
of what they ask in all.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from gpushare.core.facts import intree, names, objects, request, units
from gpushare.core.facts.model import NodeFacts, Request, Role, Share, Unit
from gpushare.core.facts.packing.asked import cpu_and_memory
from gpushare.sim.recording.machines import Machine
from gpushare.sim.trace import Pod
from gpushare.view import sold


class Terminated(objects.Struct):
    finished_at: str | None = None


class ContainerState(objects.Struct):
    terminated: Terminated | None = None


class ContainerStatus(objects.Struct):
    state: ContainerState | None = None


class PodStatus(objects.PodStatus):
    start_time: str | None = None
    container_statuses: list[ContainerStatus] | None = None


class LivePod(intree.Pod):
    """A pod with the times of its containers."""

    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Reading:
    """How pods of one cluster are read. Amounts of a pod that names no unit count in that of its node; while it waits,
    in that of most nodes."""

    def __init__(self, machines: Mapping[str, Machine]) -> None:
        self._machines = machines
        published = [machine.facts for machine in machines.values() if machine.facts is not None]
        in_gib = sum(facts.unit == names.GIB for facts in published)
        self._unit: Unit = "GiB" if 2 * in_gib > len(published) else "MiB"
        self._slots = next((facts for facts in published if facts.slots), None)
        self._seller = next((machine for machine in machines.values() if machine.replicas), None)

    def asked(self, pod: LivePod, models: tuple[str, ...]) -> Pod | None:
        """The pod without its times; None if a trace cannot say what it asks."""
        gpus = self._gpus(pod)
        if gpus is None:
            return None
        cpu, memory = cpu_and_memory(pod.spec)
        return Pod(f"{pod.metadata.namespace}/{pod.metadata.name}", cpu, memory, *gpus, models)

    def _gpus(self, pod: LivePod) -> tuple[int, int] | None:
        """How many GPUs, and MiB on each; 0: wholly."""
        wish, there = request.parse(pod, None), self._machines.get(pod.spec.node_name or "")
        by_count = {} if isinstance(wish, Request) else sold.asked(pod)
        if by_count:
            seller = there or self._seller
            count = sum(amount for name, amount in by_count.items() if name in names.NVIDIA_GPUS)
            return (count, seller.share()) if count and seller is not None and len(by_count) == 1 else None
        if wish is None:
            return 0, 0
        if not isinstance(wish, Request):
            return None
        facts = there.facts if there is not None else None
        shares = [share for share in wish.shares if share.role is not Role.INIT] or list(wish.shares)
        count = sum(share.gpus for share in shares)
        if any(share.kind.exclusive for share in shares):
            return count, 0
        mib = sum(self._mib(share, wish, facts) for share in shares)
        return count, -(-mib // count)

    def _mib(self, share: Share, wish: Request, facts: NodeFacts | None) -> int:
        """Of one container, on all its GPUs together."""
        if share.units:
            unit = facts.unit if facts is not None else wish.unit or self._unit
            return units.converted(share.units, unit, names.MIB)
        if share.slot_bytes:
            return units.in_unit(share.slot_bytes, names.MIB) * share.gpus
        seller = facts if facts is not None and facts.slots else self._slots
        if seller is None:
            return 0
        return units.converted(share.on(seller.gpus[0], seller), seller.unit, names.MIB) * share.gpus


def arrival(pod: LivePod) -> float | None:
    """Seconds since 1970; None: not known."""
    return _moment(pod.metadata.creation_timestamp)


def duration(pod: LivePod) -> float | None:
    """How long it ran, in seconds; None: it still does, or nobody knows."""
    if pod.status.phase not in objects.FINISHED:
        return None
    began = _moment(pod.status.start_time)
    ends = [_moment(ended.finished_at) for ended in _terminated(pod)]
    known = [end for end in ends if end is not None]
    return max(max(known) - began, 0.0) if began is not None and known else None


def _terminated(pod: LivePod) -> Iterable[Terminated]:
    for status in pod.status.container_statuses or ():
        if status.state is not None and status.state.terminated is not None:
            yield status.state.terminated


def _moment(written: str | None) -> float | None:
    try:
        return datetime.fromisoformat(written).timestamp() if written else None
    except ValueError:
        return None
