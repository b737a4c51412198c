"""What the demo's pods do on their simulated GPUs: made up, because their containers are simulated, too.

Each running container that was given GPUs has one process on each of them. It uses a bit less than it asked for: how
much less is decided by its name, so it is the same in every run.
"""

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gpushare.core.annotations import pod_gpus
from gpushare.core.facts import units
from gpushare.gpu.simulated_use import SimulatedProcess
from gpushare.node.part import Part
from gpushare.node.pods import NodePod
from gpushare.node.publishing.desired import Wanted
from gpushare.node.usage.model import Owner

MIB: Final = 1024 * 1024
LEAST_USED, MOST_USED = 0.60, 0.95  # of what a container asked for
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
            yield from _of_pod(pod, wants)


def _of_pod(pod: NodePod, wants: Wanted) -> Iterator[_Running]:
    facts, statuses = wants.facts, pod.pod.statuses()
    shares, places = pod_gpus.planned(pod.facts, facts) or ((), ())
    for share, chosen in zip(shares, places, strict=True):
        status = statuses.get(share.container)
        if status is None or not status.is_running or not status.container_id:
            continue
        container_id = status.container_id.rpartition("//")[2]
        name = f"{pod.facts.namespace}/{pod.facts.name}/{share.container}"
        used = LEAST_USED + (MOST_USED - LEAST_USED) * _share_of(name)
        busy = LEAST_BUSY + round((MOST_BUSY - LEAST_BUSY) * _share_of(f"{name} is busy"))
        pid = FIRST_PID + int(PIDS * _share_of(container_id))
        for gpu in chosen:
            asked = share.on(facts.gpus[gpu], facts) * units.BYTES_IN[facts.unit]
            process = SimulatedProcess(pid, int(asked * used) // MIB, busy)
            yield _Running(facts.gpus[gpu].uuid, Owner(pod.facts.uid, container_id), process)


def _share_of(text: str) -> float:
    """From 0 to 1, always the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32
