"""`gpushare node`: wiring, read top to bottom.

Started by the command line on every GPU node. It needs the driver and the API server; the API server may be away, at
the start and later, and is waited for. Nothing that runs on the node depends on this process.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpushare.core.facts import objects
from gpushare.core.facts.model import NodeFacts, Pin, Unit
from gpushare.gpu.device import Backend
from gpushare.kube import client, failures
from gpushare.kube.auth.login import Access
from gpushare.kube.events import Recorder
from gpushare.kube.reflector import Reflector
from gpushare.kubelet import paths
from gpushare.node import pinning, pods, probe, this_node
from gpushare.node.audit.auditor import Auditor
from gpushare.node.deviceplugin import kubelet_folder
from gpushare.node.gpus import Gpus
from gpushare.node.metrics import Metrics, Sight
from gpushare.node.pinning import Asked
from gpushare.node.pods import NodePods
from gpushare.node.publishing.assigned import Assigner
from gpushare.node.publishing.desired import PublishConfig
from gpushare.node.publishing.publisher import Publisher
from gpushare.node.publishing.unhealthy_configmap import UnhealthyConfigMap
from gpushare.node.this_node import ThisNode
from gpushare.obs import errors, log
from gpushare.obs.signals import ending

if TYPE_CHECKING:
    from gpushare.node.deviceplugin.environment import Visible
    from gpushare.node.deviceplugin.plugin import Plugin

START_SECONDS = 30.0  # what is not there by then will not come without somebody's help
DRAIN_SECONDS = 5.0
STUCK_SECONDS = 300.0  # a driver that is silent for longer: this process cannot mend it, a new one may
SILENT_SECONDS = 1.0  # then it is said what is waited for
TICK = 0.2
# Seconds, longer than the extender's: there may be thousands of nodes. Most API servers say something on a watch every
# minute, so most are never asked; and a watch that must be opened again from an old revision may cost a list.
SILENCE, PATIENCE = 75.0, 300.0
STARTING = "starting: waiting for {what}"
STUCK = "the driver has not answered for {seconds:.0f} s"
NOT_SAID = "the node object does not say what it must{why}"
NOT_REGISTERED = "kubelet does not know the device plugin yet"

logger = log.get(__name__)


class Config(NamedTuple):
    """`port` 0: any that is free. `kubelet`: where its folders are."""

    node: str
    unit: Unit = "GiB"
    pin: Asked = "auto"
    reserve_mib: int = 0
    host: str = "127.0.0.1"
    port: int = 12346
    visible: "Visible" = "uuid"
    unhealthy_configmap: bool = False
    kubelet: str = paths.ROOT


class Node:
    """All parts. The publisher and those after it are made once it is known how this node pins."""

    def __init__(self, config: Config, api: client.Api, backend: Backend) -> None:
        self.config, self.api = config, api
        self.gpus = Gpus(backend)
        self.own, self.pods = ThisNode(config.node), NodePods()
        self.watches: dict[str, Reflector[Any]] = {
            "node": Reflector(
                api, this_node.PATH, objects.Node, self.own, key=lambda n: n.metadata.name,
                params=this_node.params(config.node), silence=SILENCE, patience=PATIENCE,
            ),
            "pods": Reflector(
                api, pods.PATH, pods.Pod, self.pods, key=lambda p: p.metadata.uid, params=pods.params(config.node),
                silence=SILENCE, patience=PATIENCE,
            ),
        }  # fmt: skip
        self.recorder = Recorder(api)
        self.publisher: Publisher | None = None
        self.plugin: Plugin | None = None  # on nodes that pin by it
        self._last_wait = "the admission policy"  # what is waited for after the node and its pods are known
        self.sight = Sight()
        self.sight.ages = lambda: {
            **{name: watch.age() for name, watch in self.watches.items()}, "driver": self.gpus.silent_for()
        }  # fmt: skip
        self.sight.events = lambda: {
            "sent": self.recorder.sent, "dropped": self.recorder.dropped, "failed": self.recorder.failed
        }  # fmt: skip

    def dead(self) -> str:
        """Why this process should be started anew; empty if it should not."""
        silent = self.gpus.silent_for()
        return STUCK.format(seconds=silent) if silent > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        """What is missing; empty if all is well."""
        if self.publisher is None:
            return STARTING.format(what=self._waits_for())
        if not self.publisher.done:
            failure = self.publisher.failure
            return NOT_SAID.format(why=f": {failure}" if failure else "")
        if self.plugin is not None and not all(endpoint.registered for endpoint in self.plugin.endpoints):
            return NOT_REGISTERED
        return self.gpus.failure.what if self.gpus.failure is not None else ""

    async def run(self) -> None:
        """Until cancelled, or something fails."""
        with contextlib.ExitStack() as at_the_end:
            await self._run(at_the_end)

    async def _run(self, at_the_end: contextlib.ExitStack) -> None:
        async with asyncio.TaskGroup() as tasks:
            for watch in self.watches.values():
                tasks.create_task(watch.run())
            tasks.create_task(self.recorder.run())
            await self.gpus.begin(START_SECONDS)
            node = await self._first_sight()
            pinning.refuse_beside_nvidia(node)
            pin = await pinning.decide(self.config.pin, self.api)
            if pin is Pin.PLUGIN:
                at_the_end.callback(os.close, await self._lock_kubelets_folder())
            publish_config = PublishConfig(self.config.node, self.config.unit, pin, self.config.reserve_mib)
            publisher = self.publisher = Publisher(self.api, publish_config, self.gpus, self.pods, self.own)
            assigner = Assigner(self.api, self.pods)
            auditor = Auditor(self.recorder, self.pods, self.own, unit=self.config.unit)
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
        if self.publisher is not None:
            await self.publisher.drain(DRAIN_SECONDS)

    async def _first_sight(self) -> objects.Node:
        """The node's own object, once its pods are known as well. Waits for a cluster that is away, but not for one
        that answers and does not let us in."""
        loop = asyncio.get_running_loop()
        begun, said = loop.time(), False
        while self.own.node is None or not all(watch.synced for watch in self.watches.values()):
            waited = loop.time() - begun
            if waited > SILENT_SECONDS and not said:
                logger.info("waiting", what=self._waits_for())
                said = True
            if waited > START_SECONDS:
                self._give_up_if_hopeless()
            await asyncio.sleep(TICK)
        return self.own.node

    def _give_up_if_hopeless(self) -> None:
        for watch in self.watches.values():
            failure = watch.failure if not watch.synced else None
            if failure is not None and failures.needs_help(failure, waits_for_connection=True):
                raise failures.explain(failure, self.api.access)
        if self.watches["node"].synced and self.own.node is None:
            what, why = f'no node "{self.config.node}"', "the cluster has no node of that name"
            raise errors.UserError(what, why, "--node-name NAME or NODE_NAME, one of: kubectl get nodes")

    def _waits_for(self) -> str:
        if not self.gpus.devices:
            return f"the driver: {self.gpus.failure.what}" if self.gpus.failure else "the driver"
        for name, watch in self.watches.items():
            if not watch.synced:
                return f"{name}: {watch.failure}" if watch.failure else name
        return f'node "{self.config.node}"' if self.own.node is None else self._last_wait

    async def _lock_kubelets_folder(self) -> int:
        """Before anything is published: beside another plugin this process must not change the node."""
        self._last_wait = "kubelet's device-plugins folder"
        folder = Path(self.config.kubelet, paths.DEVICE_PLUGINS)
        return await kubelet_folder.lock(folder, self.config.node, START_SECONDS)

    def _device_plugin(self, publisher: Publisher) -> Coroutine[Any, Any, None]:
        """Made at once, so that it hears of the GPUs; runs when it has."""
        from gpushare.node.deviceplugin.plugin import Plugin  # gRPC is large, and nodes that pin directly do without it

        config, known = self.config, asyncio.Event()
        plugin = self.plugin = Plugin(
            node=config.node, unit=config.unit, api=self.api, pods=self.pods, events=self.recorder,
            kubelet=Path(config.kubelet), visible=config.visible,
        )  # fmt: skip

        def tell(facts: NodeFacts) -> None:
            plugin.set_gpus(facts)
            known.set()

        async def run() -> None:
            await known.wait()
            await plugin.run()

        publisher.listeners.append(tell)
        return run()


async def run(config: Config, access: Access, backend: Backend) -> signal.Signals:
    """Until a signal comes, which is returned."""
    signals = ending()
    async with client.connect(access) as api:
        node = Node(config, api, backend)
        listening = await probe.listen(config.host, config.port, node.dead, node.not_ready, Metrics(node.sight))
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
    """Of a group of tasks the one that failed, which is what people should read about."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
