"""Which containers use more of a GPU than they asked for, and since when.

Pure: callers pass the time. A container is over its grant if it uses more than the grant and the tolerance. It counts
once that has lasted longer than the grace. Use that is not known begins nothing and ends nothing; after a grace without
any figure it is forgotten.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpushare.node.usage.model import ContainerUse, GpuUse

GRACE_SECONDS: Final = 60.0


class Tolerance(NamedTuple):
    """The larger of both is allowed above a grant."""

    ratio: float = 0.05
    bytes: int = 256 << 20

    def allows(self, granted: int, used: int) -> bool:
        return used <= granted + max(self.ratio * granted, self.bytes)


class Key(NamedTuple):
    pod_uid: str
    container: str
    uuid: str  # of the GPU


class OverUse(NamedTuple):
    """`since` and `at`: when it was first and last seen, by the clock of the caller. `neighbours`: other pods on this
    GPU (NAMESPACE/NAME), which may run out of memory."""

    key: Key
    namespace: str
    pod: str
    gpu: int  # its index
    granted: int
    used: int
    since: float
    at: float
    neighbours: tuple[str, ...] = ()

    @property
    def beyond(self) -> int:
        return self.used - self.granted


class Watch:
    """`current`: those that have lasted longer than the grace, the largest first. `at`: when it last looked."""

    def __init__(self, tolerance: Tolerance, grace: float) -> None:
        self.current: tuple[OverUse, ...] = ()
        self.at = 0.0
        self._tolerance, self._grace = tolerance, grace
        self._seen: dict[Key, OverUse] = {}  # also those that have not lasted long enough

    def look(self, gpus: Iterable[GpuUse], now: float, *, again: bool = False) -> None:
        """`again`: the figures are those of the last look, because the driver has told no others. Then use is not
        known: nobody is judged twice by one sample."""
        before, self._seen, self.at = self._seen, {}, now
        for gpu in gpus:
            for use in gpu.containers:
                key = Key(use.pod_uid, use.container, gpu.uuid)
                if (over := self._judged(key, gpu, use, before.get(key), now, again)) is not None:
                    self._seen[key] = over
        known = {over.key for over in self.current}
        lasting = [
            over
            for over in self._seen.values()
            if now - over.since > self._grace and (over.at == now or over.key in known)
        ]
        self.current = tuple(sorted(lasting, key=lambda over: -over.beyond))

    def _judged(
        self, key: Key, gpu: GpuUse, use: ContainerUse, before: OverUse | None, now: float, again: bool
    ) -> OverUse | None:
        if again or use.used is None or use.granted is None:
            return before if before is not None and now - before.at <= self._grace else None
        if self._tolerance.allows(use.granted, use.used):
            return None
        since = before.since if before is not None else now
        others = {f"{other.namespace}/{other.pod}": None for other in gpu.containers if other.pod_uid != use.pod_uid}
        return OverUse(key, use.namespace, use.pod, gpu.index, use.granted, use.used, since, now, tuple(others))
