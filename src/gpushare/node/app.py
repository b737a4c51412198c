"""`gpushare node`: wiring, read top to bottom.

One process on every GPU node. It needs the driver and the API server; an API server that is away is waited for. Pods
that run on the node do not depend on this process.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpushare.core.facts.model import NodeFacts, Pin, Unit
from gpushare.gpu.device import Backend
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.kube.events import Recorder
from gpushare.kubelet import paths
from gpushare.node import pinning
from gpushare.node.audit.auditor import Auditor
from gpushare.node.deviceplugin import kubelet_folder
from gpushare.node.gpus import Gpus
from gpushare.node.metrics import Metrics, Sight
from gpushare.node.pinning import Choice
from gpushare.node.publishing.assigned import Assigner
from gpushare.node.publishing.desired import PublishConfig
from gpushare.node.publishing.publisher import Publisher
from gpushare.node.publishing.unhealthy_configmap import UnhealthyConfigMap
from gpushare.node.watches import Watches
from gpushare.obs import http, log
from gpushare.obs.signals import ending

if TYPE_CHECKING:
    from gpushare.node.deviceplugin.environment import Visible
    from gpushare.node.deviceplugin.plugin import Plugin

START_SECONDS = 30.0  # for driver, kubelet and rights; then the process ends with the reason
DRAIN_SECONDS = 5.0
EVENTS_SECONDS = 1.0  # for events that are not sent yet when the process ends
STUCK_SECONDS = 300.0  # without an answer of the driver; then kubelet is asked to restart this process
STARTING = "starting: waiting for {what}"
STUCK = "the driver has not answered for {seconds:.0f} s"
NOT_UPDATED = "node annotation or capacity not updated yet{why}"
NOT_REGISTERED = "the device plugin is not registered with kubelet yet"

logger = log.get(__name__)


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


class Node:
    """All parts. The publisher and the parts that depend on it are made once it is decided how this node pins."""

    def __init__(self, config: Config, api: client.Api, backend: Backend) -> None:
        self.config, self.api = config, api
        self.gpus = Gpus(backend)
        self.watches = Watches(api, config.node)
        self.pods, self.this_node = self.watches.pods, self.watches.this_node
        self.recorder = Recorder(api)
        self.publisher: Publisher | None = None
        self.plugin: Plugin | None = None  # only if this node pins by device plugin
        self._last_wait = "the admission policy"  # what is waited for after the node and its pods are known
        self.sight = Sight()
        self.sight.ages = lambda: {
            **{name: watch.age() for name, watch in self.watches.reflectors.items()}, "driver": self.gpus.silent_for()
        }  # fmt: skip
        self.sight.events = lambda: {
            "sent": self.recorder.sent, "dropped": self.recorder.dropped, "failed": self.recorder.failed
        }  # fmt: skip

    def dead(self) -> str:
        """Why kubelet should restart this process; empty if it should not."""
        silent = self.gpus.silent_for()
        return STUCK.format(seconds=silent) if silent > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        """What is missing; empty if nothing is."""
        if self.publisher is None:
            return STARTING.format(what=self._waits_for())
        if not self.publisher.done:
            failure = self.publisher.failure
            return NOT_UPDATED.format(why=f": {failure}" if failure else "")
        if self.plugin is not None and not all(endpoint.registered for endpoint in self.plugin.endpoints):
            return NOT_REGISTERED
        return self.gpus.failure.what if self.gpus.failure is not None else ""

    async def run(self) -> None:
        """Until cancelled, or something fails."""
        with contextlib.ExitStack() as at_the_end:
            await self._run(at_the_end)

    async def _run(self, at_the_end: contextlib.ExitStack) -> None:
        async with asyncio.TaskGroup() as tasks:
            for watch in self.watches.reflectors.values():
                tasks.create_task(watch.run())
            tasks.create_task(self.recorder.run())
            await self.gpus.begin(START_SECONDS)
            pinning.refuse_beside_nvidia(await self.watches.synced(START_SECONDS))
            pin = await pinning.decide(self.config.pin, self.api)
            if pin is Pin.PLUGIN:
                tasks.create_task(await self._lock_kubelets_folder(at_the_end))
            publish_config = PublishConfig(self.config.node, self.config.unit, pin, self.config.reserve_mib)
            publisher = self.publisher = Publisher(self.api, publish_config, self.gpus, self.pods, self.this_node)
            assigner = Assigner(self.api, self.pods)
            auditor = Auditor(self.recorder, self.pods, self.this_node, unit=self.config.unit)
            publisher.listeners.append(auditor.see)
            self.sight.wants, self.sight.found = lambda: publisher.wants, auditor.counts
            self.sight.done = lambda: {"node": publisher.writes, "pods": assigner.marked}
            if pin is Pin.PLUGIN:
                tasks.create_task(self._device_plugin(publisher))
            if self.config.unhealthy_configmap:
                config_map = UnhealthyConfigMap(self.api, self.config.node)
                publisher.listeners.append(config_map.see)
                tasks.create_task(config_map.run())
            for work in (publisher, assigner, auditor):
                tasks.create_task(work.run())
            tasks.create_task(self.gpus.look())
            tasks.create_task(self.gpus.listen())

    async def drain(self) -> None:
        """Before the end: the node says that it drains, and events that are not sent yet are sent."""
        events = self.recorder.drain(EVENTS_SECONDS)
        if self.publisher is None:
            await events
        else:
            await asyncio.gather(self.publisher.drain(DRAIN_SECONDS), events)

    def _waits_for(self) -> str:
        if not self.gpus.devices:
            return f"the driver: {self.gpus.failure.what}" if self.gpus.failure else "the driver"
        return self.watches.waits_for() or self._last_wait

    async def _lock_kubelets_folder(self, at_the_end: contextlib.ExitStack) -> Coroutine[Any, Any, None]:
        """Before anything is published: while another plugin runs, this process must not change the node. Returns what
        keeps the lock."""
        self._last_wait = "kubelet's device-plugins folder"
        folder = Path(self.config.kubelet, paths.DEVICE_PLUGINS)
        lock = await kubelet_folder.lock(folder, self.config.node, START_SECONDS)
        at_the_end.callback(os.close, lock)
        return kubelet_folder.keep_locked(folder, self.config.node, lock)

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
    signals = ending()
    async with client.connect(access) as api:
        node = Node(config, api, backend)
        listening = await http.serve_probes(
            config.host, config.port, node.dead, node.not_ready, Metrics(node.sight).registry
        )
        logger.info("listening", **config._asdict() | {"port": listening.addresses[0][1]})
        work, stop = asyncio.create_task(node.run()), asyncio.create_task(signals.get())
        try:
            await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                logger.info("draining")
                await node.drain()
        finally:
            for task in (work, stop):
                task.cancel()
            ended, _ = await asyncio.gather(work, stop, return_exceptions=True)
            await listening.cleanup()
            await backend.close()
        if isinstance(ended, Exception):
            raise _first(ended)
        return stop.result()


def _first(error: Exception) -> Exception:
    """The error of the task that failed first: that is the one people should read."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
