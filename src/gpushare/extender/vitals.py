"""What GPUs do, as nodes publish it in their `GPUNode`: the last status of each node.

The sink of a watch that nothing waits for: without the kind, without the right to read it, or cut off, what GPUs do is
unknown. Policies that give points then decide by what the ledger knows; all others never look at it. `/inspect` shows
it.
"""

from collections.abc import Callable, Collection, Mapping, Set

import msgspec

from gpushare.core.facts import objects, vitals
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.loads import Measured


class GpuNode(objects.Struct):
    """One whose status is not read yet: a status that is not as it should be must not stop the watch."""

    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    status: msgspec.Raw = msgspec.Raw(b"{}")


class Vitals:
    def __init__(self, ledger: Ledger, *, now: Callable[[], float], clock: Callable[[], float]) -> None:
        """`now`: seconds since 1970; `clock`: the time of the ledger."""
        self._ledger, self._now, self._clock = ledger, now, clock
        self._statuses: dict[str, vitals.Status] = {}
        self._counting: dict[str, float] = {}  # nodes whose figures the ledger has: until when

    def fresh(self, node: str) -> vitals.Status | None:
        """What the GPUs of a node do, if that is known and not too old."""
        status = self._statuses.get(node)
        return status if status is not None and vitals.is_fresh(status, self._now()) else None

    def expire(self) -> None:
        """Figures that have become too old count no longer."""
        now = self._clock()
        for name in [name for name, until in self._counting.items() if until < now]:
            self._forget_figures(name)

    def over_users(self, node: str) -> Mapping[str, Collection[str]]:
        """Pods that use more of a GPU than they asked for, by uuid of the GPU; only fresh figures."""
        status = self.fresh(node) if self._statuses else None
        gpus = status.gpus or () if status is not None else ()
        return {gpu.uuid: gpu.over_users for gpu in gpus if gpu.over_users}

    def upsert(self, item: GpuNode) -> None:
        name = item.metadata.name
        try:
            status = self._statuses[name] = _status.decode(item.status)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._drop(name)
            return
        age = vitals.age(status, self._now())
        if age is None or not vitals.is_fresh(status, self._now()):
            self._forget_figures(name)
            return
        gpus = {gpu.uuid: gpu for gpu in status.gpus or () if gpu.uuid}
        # Not below 0, where the time of the ledger begins: the machine may have been started after the sample.
        sampled = max(self._clock() - max(age, 0.0), 0.0)
        self._ledger.measure(name, Measured(sampled, gpus, not status.containers_unknown))
        self._counting[name] = sampled + vitals.counts_for(status)

    def remove(self, item: GpuNode) -> None:
        self._drop(item.metadata.name)

    def relisted(self, kept: Set[str]) -> None:
        for name in [name for name in self._statuses if name not in kept]:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._statuses.pop(name, None)
        self._forget_figures(name)

    def _forget_figures(self, name: str) -> None:
        self._counting.pop(name, None)
        self._ledger.measure(name, None)


_status = msgspec.json.Decoder(vitals.Status)
