"""What the GPUs of this node do at one moment, and for whom: what everybody who publishes it reads.

Pure data. Memory is in bytes. None is unknown, never 0.
"""

from typing import NamedTuple

from gpushare.core.facts.model import Data
from gpushare.gpu.sample import Sample


class Owner(NamedTuple):
    """Whose a process is, as its cgroup says."""

    pod_uid: str  # empty: the cgroup does not tell, only the container
    container_id: str  # without the prefix of the container runtime


class ContainerUse(Data, frozen=True):
    """A container that was given a part of a GPU, and what it uses there. `granted` is None on nodes that sell replicas
    of GPUs: nobody says how much memory comes with one."""

    namespace: str
    pod: str
    pod_uid: str
    container: str
    granted: int | None  # what it asked for on this GPU
    whole: bool = False  # it was given the whole GPU
    used: int | None = None
    sm: float | None = None  # 0 to 1
    pids: tuple[int, ...] | None = None  # its processes on this GPU; None: unknown


class GpuUse(Data, frozen=True):
    """One GPU that this node publishes. `sample` is None while the driver does not answer, or does not show it."""

    index: int  # as published
    uuid: str
    model: str
    total: int  # may be given out
    granted: int | None  # is given out; None: unknown, because GPUs are sold by count
    slots: int = 0  # MPS slots
    granted_slots: int = 0
    healthy: bool = True
    why: str = ""  # why it is not
    bus: str = ""  # PCI bus id; empty: unknown
    sample: Sample | None = None
    containers: tuple[ContainerUse, ...] = ()  # those that were given a part of it, also if they use nothing
    unattributed: int | None = None  # used, but by no container that was given this GPU
    unknown_processes: int | None = None  # processes that are of no such container

    @property
    def shares(self) -> int | None:
        """How many containers were given a part of it. Where GPUs are sold by count only processes tell."""
        return None if self.granted is None and self.unknown_processes is None else len(self.containers)

    @property
    def exclusive(self) -> ContainerUse | None:
        """The container that has the whole GPU."""
        return next((container for container in self.containers if container.whole), None)


class Usage(Data, frozen=True):
    """`sampled_at`: when the driver last answered, in seconds since 1970, also if that is too long ago for its figures
    to be here; None: never. `containers_unknown`: why the use of containers is unknown; empty: it is known."""

    node: str
    gpus: tuple[GpuUse, ...]
    sampled_at: float | None = None
    driver: str = ""
    failure: str = ""  # why the figures of the driver are missing; empty: they are here
    containers_unknown: str = ""
