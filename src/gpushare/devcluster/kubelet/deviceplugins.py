"""What a simulated kubelet does for device plugins: it asks them about every pod, and reports what they list.

One for each node where they may register, made by `kubelet`; `cluster` has it serve before anything else happens. The
rules are those of `devices`, the sockets those of `devicesocket`, placed in kubelet's folder as a real one has them.
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

REPORT_SECONDS: Final = 0.05  # a real one looks every 10 seconds

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
        """Reports for ever what there is. Also when nothing changed: a node made anew says nothing of it."""
        while True:
            report(self._manager.capacity(), self._manager.allocatable())
            await asyncio.sleep(REPORT_SECONDS)

    async def admit(self, pod: Object) -> str:
        """Gives each container its devices. Why the pod is not taken; empty if it is."""
        async with self._one_at_a_time:
            try:
                await self._manager.admit(pod)
            except Rejected as rejected:
                return str(rejected)
        return ""

    def environment(self, uid: str, container: str) -> dict[str, str]:
        return self._manager.environment(uid, container)
