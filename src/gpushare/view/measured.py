"""What the GPUs and pods of a node do, as numbers for tables and sentences.

Pure, from the status of a `GPUNode`. Amounts are in MiB. Figures that are too old are as unknown as those that the
driver does not tell; why they are is said in words.
"""

from collections.abc import Iterator, Sequence

import msgspec

from gpushare.core.explain import measured
from gpushare.core.explain.measured import Use
from gpushare.core.facts import vitals
from gpushare.core.facts.model import NodeFacts
from gpushare.core.facts.vitals import ContainerVitals, FullStatus, GpuAndContainers
from gpushare.view import wording

LAST = "last sampled {age} ago"
NEVER = "they were never sampled"
AHEAD = "they were sampled in the future: the clock of the node or the one here is wrong"


class Over(msgspec.Struct):
    """A container that uses more of a GPU than it was given."""

    gpu: int
    of: ContainerVitals
    by: int
    shared: bool  # with others, which can run out of memory


class Measured(msgspec.Struct):
    """A node. `status`: what was read of it. None: unknown."""

    status: FullStatus
    fresh: bool
    used: int | None = None  # of all its GPUs together
    utilization: int | None = None  # on average
    pods: dict[str, Use] = {}  # by uid
    over: list[Over] = []

    @property
    def why_not_sampled(self) -> str:
        """Why the driver did not answer the last pass; empty if it did, or nobody knows."""
        failed = (one for one in self.status.conditions or () if one.type == vitals.SAMPLED and one.status == "False")
        return next((one.message or "" for one in failed), "")

    @property
    def is_sampled(self) -> bool:
        return self.fresh and not self.why_not_sampled

    def why_unknown(self, now: float) -> str:
        """Why what the GPUs do is not known; empty if it is."""
        if self.is_sampled:
            return ""
        seconds, age = vitals.age(self.status, now), wording.age(self.status.sampled_at, now)
        last = NEVER if seconds is None else LAST.format(age=age) if seconds > 0 else AHEAD
        return f"{last} ({wording.printable(self.why_not_sampled)})" if self.why_not_sampled else last


def of_node(status: FullStatus | None, facts: NodeFacts | None, now: float) -> Measured | None:
    """None: nothing is published of what the GPUs of this node do."""
    if status is None or facts is None:
        return None
    if not vitals.is_fresh(status, now):
        return Measured(status, fresh=False)
    gpus = measured.by_index(status.gpus or (), facts)
    used = _sum([gpu.used_mib for gpu in gpus.values()], len(facts.gpus))
    busy = _sum([gpu.utilization for gpu in gpus.values()], len(facts.gpus))
    containers: dict[str, list[ContainerVitals]] = {}
    for gpu in gpus.values():
        for one in gpu.containers:
            containers.setdefault(one.uid, []).append(one)
    uses = {uid: use for uid, those in containers.items() if (use := measured.use(those)) is not None}
    return Measured(
        status,
        fresh=True,
        used=used,
        utilization=round(busy / len(facts.gpus)) if busy is not None else None,
        pods=uses,
        over=[over for index, gpu in gpus.items() for over in _over(index, gpu)],
    )


def _sum(figures: Sequence[int | None], gpus: int) -> int | None:
    """Of all GPUs of a node; if it is unknown of one, it is unknown of all together."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == gpus else None


def _over(index: int, gpu: GpuAndContainers) -> Iterator[Over]:
    for one in gpu.containers:
        if by := measured.over(one):
            yield Over(index, one, by, shared=len({other.uid for other in gpu.containers}) > 1)
