"""What the demo's pods do on their simulated GPUs: made up, because their containers are simulated, too.

Each running container that was given GPUs has one process on each of them. It uses a bit less than it asked for: how
much less is decided by its name, so it is the same in every run. One pod uses more, so that over-use can be seen. Where
replicas of GPUs are sold, a container is taken to ask for an equal part of the GPU.
"""

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import units
from gpushare.core.facts.model import NodeFacts
from gpushare.demo import objects
from gpushare.gpu.simulated_use import MIB, SimulatedProcess
from gpushare.node.part import Part
from gpushare.node.pods import NamedContainer, NodePod
from gpushare.node.usage.model import Owner

LEAST_USED, MOST_USED = 0.60, 0.95  # of what a container asked for
GREEDY_USED = 1.4  # by that of the pod that uses more
LEAST_BUSY, MOST_BUSY = 15, 60  # percent of a GPU's time
FIRST_PID, PIDS = 10_000, 4_000_000


class _Running(NamedTuple):
    gpu: str
    owner: Owner
    process: SimulatedProcess


class DemoWorkload:
    """The processes of one node, and whose they are: its node part is told both. `part` is None until it is made."""

    unknown: str = ""

    def __init__(self) -> None:
        self.part: Part | None = None

    def processes(self) -> dict[str, list[SimulatedProcess]]:
        """By uuid."""
        found: dict[str, list[SimulatedProcess]] = {}
        for running in self._running():
            found.setdefault(running.gpu, []).append(running.process)
        return found

    def of(self, pids: Iterable[int], pods: Container[str]) -> Mapping[int, Owner]:
        owners = {running.process.pid: running.owner for running in self._running()}
        return {pid: owners[pid] for pid in pids if pid in owners}

    def _running(self) -> Iterator[_Running]:
        wants = self.part.publisher.wants if self.part is not None and self.part.publisher is not None else None
        if self.part is None or wants is None:
            return
        for pod in self.part.pods.pods.values():
            yield from _of_pod(pod, wants.facts)
        for uid, containers in self.part.pods.sold.items():
            for container in containers:
                yield from _of_buyer(container, uid, wants.facts)


def _of_pod(pod: NodePod, facts: NodeFacts) -> Iterator[_Running]:
    statuses = pod.pod.statuses()
    shares, places = pod_gpus.planned(pod.facts, facts) or ((), ())
    for share, chosen in zip(shares, places, strict=True):
        status = statuses.get(share.container)
        if status is None or not status.is_running or not status.id:
            continue
        name = f"{pod.facts.namespace}/{pod.facts.name}/{share.container}"
        for gpu in chosen:
            asked = share.on(facts.gpus[gpu], facts) * units.BYTES_IN[facts.unit]
            yield _running(name, Owner(pod.facts.uid, status.id), facts.gpus[gpu].uuid, asked)


def _of_buyer(container: NamedContainer, uid: str, facts: NodeFacts) -> Iterator[_Running]:
    """On a node that sells GPUs by count. kubelet chooses the GPU there; the demo's node has only one."""
    replicas = next((offer.replicas for offer in facts.sold if offer.resource in container.asks), 0)
    if replicas and facts.gpus:
        asked = facts.gpus[0].total * units.BYTES_IN[facts.unit] // replicas
        name = f"{container.namespace}/{container.pod}/{container.container}"
        yield _running(name, Owner(uid, container.id), facts.gpus[0].uuid, asked)


def _running(name: str, owner: Owner, gpu: str, asked: int) -> _Running:
    """`name`: of the container. `asked`: bytes."""
    greedy = f"/{objects.GREEDY}/" in name
    used = GREEDY_USED if greedy else LEAST_USED + (MOST_USED - LEAST_USED) * _share_of(name)
    busy = LEAST_BUSY + round((MOST_BUSY - LEAST_BUSY) * _share_of(f"{name} is busy"))
    pid = FIRST_PID + int(PIDS * _share_of(owner.container_id))
    return _Running(gpu, owner, SimulatedProcess(pid, int(asked * used) // MIB, busy))


def _share_of(text: str) -> float:
    """From 0 to 1, always the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32
