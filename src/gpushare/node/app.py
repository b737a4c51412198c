"""`gpushare node`: wiring, read top to bottom.

One process on every GPU node. It needs the driver and the API server; an API server that is away is waited for. Pods
that run on the node do not depend on this process.
"""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpushare.core.facts.model import NodeFacts, Pin, Unit
from gpushare.gpu.device import Backend
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.kubelet import paths
from gpushare.node import observer, part, pinning
from gpushare.node.audit.auditor import Auditor
from gpushare.node.discovery.discovery import Config as DiscoveryConfig
from gpushare.node.mps_daemon import MpsDaemon
from gpushare.node.pinning import Choice
from gpushare.node.publishing.assigned import Assigner
from gpushare.node.publishing.desired import PublishConfig
from gpushare.node.publishing.links import Links
from gpushare.node.publishing.publisher import Publisher
from gpushare.node.publishing.unhealthy_configmap import UnhealthyConfigMap
from gpushare.node.usage.sampler import Owners
from gpushare.obs.beside import beside

if TYPE_CHECKING:
    from gpushare.node.deviceplugin.environment import Visible
    from gpushare.node.deviceplugin.plugin import Plugin


class Config(NamedTuple):
    """`port` 0: any free port. `kubelet`: its root folder."""

    node: str
    unit: Unit = "GiB"
    pin: Choice = "auto"
    reserve_mib: int = 0
    host: str = "127.0.0.1"
    port: int = 12346
    visible: "Visible" = "uuid"
    unhealthy_configmap: bool = False
    kubelet: str = paths.ROOT
    slots: int = 0  # MPS slots of each GPU
    mps_status: str = ""  # the folder where gpushare mps says how the daemon is; empty: nobody looks
    nvidia_whole: bool = False  # whole GPUs are sold as nvidia.com/gpu too
    observing: observer.Config = observer.Config()
    fail_on_init_error: bool = True  # else a node without a driver is no error
    discovery: DiscoveryConfig | None = None  # how labels say what GPUs there are


class Node(part.Part):
    """All parts. The publisher and the parts that depend on it are made once it is decided how this node pins."""

    def __init__(self, config: Config, api: client.Api, backend: Backend, owners: Owners | None = None) -> None:
        idles = not config.fail_on_init_error
        super().__init__(
            config.node, api, backend, observing=config.observing, owners=owners, idles=idles,
            discovering=config.discovery,
        )  # fmt: skip
        self.config = config
        self.plugin: Plugin | None = None  # only if this node pins by device plugin
        self._last_wait = "the admission policy"

    async def _run(self, tasks: asyncio.TaskGroup, at_the_end: contextlib.ExitStack) -> None:
        await self.gpus.begin(part.START_SECONDS)
        slots, nvidia_whole = self.config.slots, self.config.nvidia_whole
        node = await self.watches.synced(part.START_SECONDS)
        pinning.refuse_beside_nvidia(node, len(self.gpus.devices) if nvidia_whole else 0)
        pin = await pinning.decide(self.config.pin, self.api)
        pinning.refuse_to_sell(pin, slots=slots, nvidia_whole=nvidia_whole, node=node)
        if pin is Pin.PLUGIN or nvidia_whole:  # another plugin for nvidia.com/gpu would win over the pin
            folder = Path(self.config.kubelet, paths.DEVICE_PLUGINS)
            tasks.create_task(await self._lock_kubelets_folder(folder, at_the_end))
        daemon = MpsDaemon(self.config.mps_status, self.recorder, self.config.node) if slots else None
        publish_config = PublishConfig(
            self.config.node, self.config.unit, pin, self.config.reserve_mib, slots=slots, nvidia_whole=nvidia_whole,
            mps_down=daemon.look() if daemon is not None else "", only_mps=bool(self.config.mps_status),
        )  # fmt: skip
        links = Links(self._backend, self.gpus)
        publisher = self.publisher = Publisher(self.api, publish_config, self.gpus, self.pods, self.this_node, links)
        assigner = Assigner(self.api, self.pods)
        auditor = Auditor(self.recorder, self.pods, self.this_node, unit=self.config.unit)
        publisher.listeners.append(auditor.see)
        self.sight.found = auditor.counts
        self.sight.done = lambda: {"node": publisher.writes, "pods": assigner.marked}
        if pin is Pin.PLUGIN:
            tasks.create_task(self._device_plugin(publisher))
        if daemon is not None:
            daemon.tell_slots(slots, self.gpus.devices)
            daemon.listeners.append(publisher.tell_mps)
            tasks.create_task(daemon.run())
        if self.config.unhealthy_configmap:
            config_map = UnhealthyConfigMap(self.api, self.config.node)
            publisher.listeners.append(config_map.see)
            tasks.create_task(config_map.run())
        for work in (publisher, assigner, auditor):
            tasks.create_task(work.run())
        tasks.create_task(beside(links.run))

    def _is_registered(self) -> bool:
        return self.plugin is None or all(endpoint.registered for endpoint in self.plugin.endpoints)

    def _device_plugin(self, publisher: Publisher) -> Coroutine[Any, Any, None]:
        """Made at once, so that it gets the GPUs from the publisher; runs as soon as it has them."""
        from gpushare.node.deviceplugin.plugin import Plugin  # gRPC is large, and nodes that pin directly do without it

        config, known = self.config, asyncio.Event()
        plugin = self.plugin = Plugin(
            node=config.node, unit=config.unit, api=self.api, pods=self.pods, events=self.recorder,
            kubelet=Path(config.kubelet), visible=config.visible,
        )  # fmt: skip

        def set_gpus(facts: NodeFacts) -> None:
            plugin.set_gpus(facts)
            known.set()

        async def run() -> None:
            await known.wait()
            await plugin.run()

        publisher.listeners.append(set_gpus)
        return run()


async def run(config: Config, access: Access, backend: Backend) -> signal.Signals:
    """Runs until a signal comes, and returns it."""
    async with client.connect(access) as api:
        return await part.run(Node(config, api, backend), backend, config.host, config.port, config._asdict())
