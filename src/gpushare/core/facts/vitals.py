"""What the GPUs of a node do, as its node part publishes it: the status of a `GPUNode`, read and written as this.

Pure. One object for each node, of the same name. Every figure has an age. A figure that is too old, or that the driver
does not tell, is unknown: neither idle nor busy.
"""

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from gpushare.core.facts.objects import Condition, Frozen, Metadata, Struct

GROUP, VERSION, PLURAL, KIND = "gpushare.io", "v1alpha1", "gpunodes", "GPUNode"
HEARTBEAT_SECONDS = 60.0  # a status is written at least so often
SLACK_SECONDS = 20.0  # for a write that is late
AHEAD_SECONDS = 60.0  # the clock of a node may be ahead of the reader's by so much
LONGEST_SAMPLE_SECONDS = 3600.0  # more than that between two passes is not believed
SAMPLED = "Sampled"  # condition: the driver answered the last pass; else the message says why not
OVER_USE = "OverUse"  # condition: containers use more than they asked for, for longer than the grace

Figure = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
"""A status with a figure outside of this is not as it should be: points made of it would outdo all others."""


class GpuVitals(Frozen, frozen=True):
    """One GPU. Memory in MiB, utilisation in percent, temperatures in °C, power in W. None: unknown."""

    index: int = 0
    uuid: str = ""
    model: str = ""
    healthy: bool = True
    why: str = ""  # why it is not
    shares: Figure | None = None  # containers that were given a part of it
    total_mib: Figure = msgspec.field(default=0, name="totalMiB")  # may be given out
    granted_mib: Figure | None = msgspec.field(default=None, name="grantedMiB")  # is given out
    used_mib: Figure | None = msgspec.field(default=None, name="usedMiB")  # by all processes, as the driver says
    unattributed_mib: Figure | None = msgspec.field(default=None, name="unattributedMiB")  # used by no known container
    utilization: Figure | None = None
    temperature: Figure | None = None
    temperature_limit: Figure | None = None
    power_watts: Figure | None = None
    power_limit_watts: Figure | None = None
    known_processes: Figure | None = None  # those of containers that were given this GPU
    unknown_processes: Figure | None = None
    over_users: tuple[str, ...] = ()  # uids of pods that use more of it than they asked for


class ContainerVitals(Frozen, frozen=True):
    """A container on a GPU: what it was given, and what it uses. None: unknown."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""  # of the pod
    container: str = ""
    granted_mib: Figure | None = msgspec.field(default=None, name="grantedMiB")  # None where replicas of GPUs are sold
    used_mib: Figure | None = msgspec.field(default=None, name="usedMiB")
    sm_percent: Figure | None = None
    over_use: bool = False  # above what it asked, for longer than the grace


class GpuAndContainers(GpuVitals, frozen=True):
    """With the containers on it, which only people and dashboards want to know."""

    containers: tuple[ContainerVitals, ...] = ()


class Summary(Frozen, frozen=True):
    """The row of `kubectl get gpunodes`, as texts: its columns can only name fields."""

    gpus: int = 0
    model: str = ""
    granted: str = ""
    used: str = ""
    utilization: str = ""
    temperature: str = ""
    power: str = ""
    health: str = ""


class Status(Struct):
    """As the extender reads it: the containers are skipped, which are most of the bytes."""

    sampled_at: str = ""  # RFC 3339, of the last pass in which the driver answered; empty: there was none
    sample_seconds: float = 5.0  # between two passes
    driver: str = ""
    containers_unknown: str = ""  # why there are no figures of containers; empty: there are
    gpus: tuple[GpuVitals, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class FullStatus(Status):
    """With everything that is in the object."""

    summary: Summary | None = None
    gpus: tuple[GpuAndContainers, ...] | None = None  # only ever encoded or decoded


class FullGpuNode(Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    status: FullStatus = msgspec.field(default_factory=FullStatus)


def age(status: Status, now: float) -> float | None:
    """Seconds since the figures were read, negative if that is still to come; None: there are none. `now` in seconds
    since 1970."""
    try:
        at = datetime.fromisoformat(status.sampled_at)
    except ValueError:
        return None
    return now - (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def counts_for(status: Status) -> float:
    """So many seconds after they were read its figures count."""
    return HEARTBEAT_SECONDS + 2 * min(max(status.sample_seconds, 0.0), LONGEST_SAMPLE_SECONDS) + SLACK_SECONDS


def is_fresh(status: Status, now: float) -> bool:
    """Whether its figures still count. Else all of them are unknown, whatever it says: also if one of two clocks is so
    wrong that nobody can tell how old they are."""
    seconds = age(status, now)
    return seconds is not None and -AHEAD_SECONDS <= seconds <= counts_for(status)
