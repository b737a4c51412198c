"""The device plugin for whole GPUs and replicas: what is sold now, its socket, and its CDI file.

New GPUs and new settings are taken over while it runs. kubelet is told anew only if the resource has another name:
otherwise it gets another list on the stream it has, and no pod comes at a bad moment.
"""

import asyncio
import uuid
from pathlib import Path

from gpushare.core.facts.model import Sold
from gpushare.gpu.device import Backend, Link
from gpushare.kube.loop import Loop
from gpushare.node import endpoint as endpoints
from gpushare.node import kubelet_folder
from gpushare.node.endpoint import Endpoint
from gpushare.node.gpus import Gpus
from gpushare.node.mps_daemon import MpsDaemon
from gpushare.node.nvidia import host
from gpushare.node.nvidia.cdi_file import CdiFile
from gpushare.node.nvidia.rules import devices, settings
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.node.nvidia.rules.flags import KUBELET_SOCKET
from gpushare.node.nvidia.rules.settings import Settings
from gpushare.node.nvidia.service import Service
from gpushare.obs import log
from gpushare.obs.errors import UserError

logger = log.get(__name__)


class Plugin:
    """`use` must have been called before `run`. `backend` tells how the GPUs are connected. `root`: where this
    machine's file system begins."""

    def __init__(self, gpus: Gpus, backend: Backend, cdi: CdiFile, root: Path, daemon: MpsDaemon, mps: str) -> None:
        """`daemon`: what is known of the MPS daemon; `mps`: the folder that it is known from."""
        self.endpoint: Endpoint | None = None
        self._daemon, self._mps = daemon, mps
        self._gpus, self._backend, self._cdi, self._root = gpus, backend, cdi, root
        self._links: list[Link] = []
        self._linked: set[str] = set()  # the GPUs that were there when it was asked how they are connected
        self._settings: Settings | None = None
        self._service: Service | None = None
        self._renamed = asyncio.Event()
        self._loop = Loop(self._take_over)
        self._numa = host.numa(gpus.devices, root)
        gpus.listeners.append(self._changed)
        daemon.listeners.append(lambda _: self._sell())

    @property
    def registered(self) -> bool:
        """Whether kubelet knows what is sold, or shall not know."""
        socket = self._settings.kubelet_socket if self._settings else ""
        return not socket or (self.endpoint is not None and self.endpoint.registered)

    @property
    def mig_strategy(self) -> str:
        return self._settings.mig_strategy if self._settings else "none"

    async def use(self, new: Settings) -> Sold:
        """From now on. Raises UserError if that cannot be served; then nothing has changed."""
        settings.refuse_mig(new, self._gpus.devices)
        settings.refuse_mps(new, self._gpus.devices, status=self._mps)
        there = self._there()
        devices.check(there, new)
        await self._cdi.keep(new, there)
        await self._connect()
        old, self._settings = self._settings, new
        self._daemon.replicas = new.replicas if new.mps else 1
        self._daemon.look()
        if old is not None and old.resource != new.resource:
            self._service = None  # kubelet still asks the old one, until it is stopped
            self._renamed.set()
        self._sell()
        self._loop.wake()  # GPUs may have changed while the CDI file was made
        return new.sold

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._loop.run())
                while True:
                    self._renamed.clear()
                    serving = tasks.create_task(self._serve())
                    await self._renamed.wait()
                    serving.cancel()
                    await asyncio.wait([serving])
                    await asyncio.sleep(endpoints.PAUSE_SECONDS)  # for kubelet to notice that the old stream has ended
        finally:
            self._cdi.remove()

    async def _serve(self) -> None:
        assert self._settings is not None, "nothing is to be served yet"
        made = self._settings
        self._service = Service(made, lambda: host.control_nodes(self._root), lambda: str(uuid.uuid4()))
        self._sell()
        folder = Path(made.kubelet_socket or KUBELET_SOCKET).parent
        socket = self._root / str(folder).lstrip("/") / kubelet_folder.nvidia_socket(made.resource)
        self.endpoint = Endpoint(made.resource, socket, self._service, register=bool(made.kubelet_socket))
        await self.endpoint.run()

    def _there(self) -> tuple[Gpu, ...]:
        by_mps = self._settings is not None and self._settings.mps
        served = not (by_mps and self._daemon.down)
        return devices.gpus(self._gpus.devices, self._gpus.unhealthy, self._numa, served=served)

    def _changed(self) -> None:
        """GPUs have changed. What was withdrawn is withdrawn at once; a new GPU waits for its CDI spec."""
        self._numa = host.numa(self._gpus.devices, self._root)
        self._sell()
        self._loop.wake()

    def _sell(self) -> None:
        if self._settings is not None and self._service is not None:
            with_cdi = self._settings.cdi
            sold = [gpu for gpu in self._there() if not with_cdi or gpu.uuid in self._cdi.uuids]
            self._service.sell(self._settings, sold, self._links)

    async def _take_over(self) -> bool:
        """Whether everything is known of the GPUs that are there, and the CDI file has them."""
        if self._settings is None:
            return True
        await self._connect()
        try:
            await self._cdi.keep(self._settings, self._there())
        except UserError as error:
            logger.warn(error.what, **error.fields())
            return False
        self._sell()
        return True

    async def _connect(self) -> None:
        """Reads how the GPUs are connected, if there are others than before. Without that all are equally near."""
        there = {device.uuid for device in self._gpus.devices}
        if there != self._linked:
            try:
                self._links, self._linked = await self._backend.links(), there
            except UserError as error:
                logger.warn("the driver does not say how GPUs are connected", **error.fields())
