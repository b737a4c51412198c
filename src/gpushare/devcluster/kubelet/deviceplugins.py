"""Device plugins of one simulated node: they are asked about every pod, and what they list is reported.

`device_manager` has the rules, `sockets` the sockets, which are in kubelet's folder as on a real node.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.kubelet.device_manager import DeviceManager, Rejected
from gpushare.devcluster.kubelet.sockets import KubeletSockets
from gpushare.kubelet import paths

REPORT_SECONDS: Final = 0.05  # a real kubelet reports every 10 seconds

Report = Callable[[Mapping[str, int], Mapping[str, int]], None]  # capacity and allocatable, by resource


class DevicePlugins:
    """Serves while its block does. `pods`: those of the node that have not ended."""

    def __init__(self, folder: Path, pods: Callable[[], Sequence[Object]], dice: random.Random) -> None:
        self._manager = DeviceManager(lambda: {pod["metadata"]["uid"] for pod in pods()}, dice)
        self._sockets = KubeletSockets(self._manager, folder / paths.DEVICE_PLUGINS, folder / paths.POD_RESOURCES, pods)
        self._folders = (folder / paths.DEVICE_PLUGINS, (folder / paths.POD_RESOURCES).parent)
        self._one_at_a_time = asyncio.Lock()  # as kubelet admits pods

    async def __aenter__(self) -> Self:
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)
        await self._sockets.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sockets.__aexit__(kind, error, trace)

    async def run(self, report: Report) -> None:
        """Reports what the plugins list, again and again, because the node may have been created again."""
        while True:
            report(self._manager.capacity(), self._manager.allocatable())
            await asyncio.sleep(REPORT_SECONDS)

    async def admit(self, pod: Object) -> str:
        """Gives each container its devices. Returns why the pod is not admitted; empty if it is."""
        async with self._one_at_a_time:
            try:
                await self._manager.admit(pod)
            except Rejected as rejected:
                return str(rejected)
        return ""

    def environment(self, uid: str, container: str) -> dict[str, str]:
        return self._manager.environment(uid, container)
