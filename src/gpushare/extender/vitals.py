"""What GPUs do, as nodes publish it in their `GPUNode`: the last status of each node.

The sink of a watch that nothing waits for: without the kind, without the right to read it, or cut off, everything is
decided as ever, and what GPUs do is unknown. No decision reads it; `/inspect` shows it.
"""

from collections.abc import Callable, Collection, Mapping, Set

import msgspec

from gpushare.core.facts import objects, vitals


class GpuNode(objects.Struct):
    """One whose status is not read yet: a status that is not as it should be must not stop the watch."""

    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    status: msgspec.Raw = msgspec.Raw(b"{}")


class Vitals:
    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds since 1970."""
        self._now = now
        self._statuses: dict[str, vitals.Status] = {}

    def fresh(self, node: str) -> vitals.Status | None:
        """What the GPUs of a node do, if that is known and not too old."""
        status = self._statuses.get(node)
        return status if status is not None and vitals.is_fresh(status, self._now()) else None

    def over_users(self, node: str) -> Mapping[str, Collection[str]]:
        """Pods that use more of a GPU than they asked for, by uuid of the GPU; only fresh figures."""
        status = self.fresh(node) if self._statuses else None
        gpus = status.gpus or () if status is not None else ()
        return {gpu.uuid: gpu.over_users for gpu in gpus if gpu.over_users}

    def upsert(self, item: GpuNode) -> None:
        try:
            self._statuses[item.metadata.name] = _status.decode(item.status)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._statuses.pop(item.metadata.name, None)

    def remove(self, item: GpuNode) -> None:
        self._statuses.pop(item.metadata.name, None)

    def relisted(self, kept: Set[str]) -> None:
        for name in [name for name in self._statuses if name not in kept]:
            del self._statuses[name]


_status = msgspec.json.Decoder(vitals.Status)
