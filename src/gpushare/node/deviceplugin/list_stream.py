"""The list of devices that kubelet watches, for one resource: made again after each change and sent if it differs.

The message itself is made in `device_list`.
"""

from collections.abc import AsyncIterator

from gpushare.core.facts.model import Gpu, Kind
from gpushare.kubelet.unit_ids import lowest
from gpushare.node.deviceplugin import device_list
from gpushare.node.deviceplugin.allocation.state import State
from gpushare.node.endpoint import DeviceLists


class ListStream:
    def __init__(self, state: State, *, kind: Kind) -> None:
        self._state, self._kind = state, kind
        self._lists = DeviceLists()
        self._made_of: tuple[tuple[Gpu, ...], dict[str, int], dict[str, str]] | None = None

    def update(self) -> None:
        """The state changed: makes the list again if it is made of something else now."""
        gpus, catalog = self._state.facts.gpus, self._state.catalog
        healthy = {gpu.uuid: self._healthy(gpu) for gpu in gpus}
        made_of = (gpus, healthy, dict(catalog.keys))
        if self._made_of == made_of:
            return
        self._made_of = made_of
        if self._kind.exclusive:
            self._lists.set(device_list.whole(gpus, healthy))
        else:
            self._lists.set(device_list.memory(gpus, catalog.keys, healthy, catalog.numbered))

    def messages(self) -> AsyncIterator[bytes]:
        """The whole list, and again after each change."""
        return self._lists.messages()

    def _healthy(self, gpu: Gpu) -> int:
        """The units that are listed healthy. Of an unhealthy GPU those that a pod holds: without them the node would
        seem to have less than its pods already use."""
        table = self._state.table
        everything = 1 if self._kind.exclusive else (1 << gpu.total) - 1
        if gpu.healthy:
            return everything
        if self._kind.exclusive:
            return int(table.is_whole(gpu.uuid))
        unnamed = sum(grant.unnamed.get(gpu.uuid, 0) for grant in table.grants.values())
        taken = table.taken(gpu.uuid) & everything
        return taken | lowest(everything & ~taken, unnamed)
