"""What every process on a GPU node has, whatever it sells: the GPUs, the watches, events, probes, and an orderly end.

`app` sells shares of GPUs, `nvidia/app` whole GPUs and replicas, and `collector/app` nothing: it only measures. Each
says what it does in `_run`.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from gpushare.gpu.device import Backend
from gpushare.gpu.health import Health
from gpushare.kube import client
from gpushare.kube.events import Recorder
from gpushare.kube.scraping.server import Server
from gpushare.node import kubelet_folder
from gpushare.node.discovery import labels
from gpushare.node.discovery.discovery import Config as DiscoveryConfig
from gpushare.node.discovery.discovery import Discovery
from gpushare.node.discovery.labels import Sharing
from gpushare.node.exporter.exporter import Exporter
from gpushare.node.exporter.page import Counted
from gpushare.node.gpus import Gpus
from gpushare.node.metrics import Metrics, Sight
from gpushare.node.observer import Config as ObserverConfig
from gpushare.node.observer import Observer
from gpushare.node.publishing.desired import Offered
from gpushare.node.publishing.publisher import Publisher
from gpushare.node.usage.model import Usage
from gpushare.node.usage.sampler import Owners
from gpushare.node.watches import Watches
from gpushare.obs import http, log
from gpushare.obs.beside import beside
from gpushare.obs.signals import ending

START_SECONDS = 30.0  # for driver, kubelet and rights; then the process ends with the reason
DRAIN_SECONDS = 5.0
EVENTS_SECONDS = 1.0  # for events that are not sent yet when the process ends
STUCK_SECONDS = 300.0  # without an answer of the driver; then kubelet is asked to restart this process
STARTING = "starting: waiting for {what}"
STUCK = "the driver has not answered for {seconds:.0f} s"
NOT_UPDATED = "node annotation or capacity not updated yet{why}"
NOT_REGISTERED = "the device plugin is not registered with kubelet yet"

logger = log.get(__name__)


class Part:
    """`publisher` and `observer` are None until it is decided what this node publishes. `owners`: who says whose a
    process is; None: the host's /proc. `idles`: a node without a driver is no error, and nothing is done there.
    `discovering`: None: no labels say what GPUs there are. `root`: where this machine's file system begins."""

    def __init__(
        self,
        node: str,
        api: client.Api,
        backend: Backend,
        health: Health | None = None,
        *,
        observing: ObserverConfig | None = None,
        owners: Owners | None = None,
        idles: bool = False,
        discovering: DiscoveryConfig | None = None,
        root: str = "/",
    ) -> None:
        self.node, self.api, self._idles = node, api, idles
        self._discovering, self._root = discovering, Path(root)
        self.observer: Observer | None = None
        self._backend, self._observing, self._owners = backend, observing or ObserverConfig(), owners
        self.gpus = Gpus(backend, health)
        self.watches = Watches(api, node)
        self.pods, self.this_node = self.watches.pods, self.watches.this_node
        self.recorder = Recorder(api)
        self.publisher: Publisher | None = None
        self._last_wait = ""  # what is waited for after the node and its pods are known
        self.sight = Sight()
        self.sight.ages = self._ages
        self.sight.events = lambda: {
            "sent": self.recorder.sent, "dropped": self.recorder.dropped, "failed": self.recorder.failed
        }  # fmt: skip
        exporter = self._observing.exporter
        self.exporter = Exporter(
            exporter, Metrics(self.sight).registry, usage=self._usage, counted=self._counted,
            dcgm_runs=lambda: bool(self.pods.dcgm_exporters),
        )  # fmt: skip
        self.server = Server(exporter.listen, node, api, self.exporter.page) if exporter.listen is not None else None

    def dead(self) -> str:
        """Why kubelet should restart this process; empty if it should not."""
        silent = self.gpus.silent_for()
        return STUCK.format(seconds=silent) if silent > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        """What is missing; empty if nothing is."""
        if self.gpus.absent:
            return ""
        return self._missing() or (self.gpus.failure.what if self.gpus.failure is not None else "")

    def _missing(self) -> str:
        """Besides the driver, once it has answered."""
        if self.publisher is None:
            return STARTING.format(what=self._waits_for())
        if not self.publisher.done:
            failure = self.publisher.failure
            return NOT_UPDATED.format(why=f": {failure}" if failure else "")
        return "" if self._is_registered() else NOT_REGISTERED

    async def run(self) -> None:
        """Until cancelled, or something fails."""
        with contextlib.ExitStack() as at_the_end:
            async with asyncio.TaskGroup() as tasks:
                if self.server is not None:
                    tasks.create_task(self.server.run())
                if self._idles:
                    await self.gpus.wait_for_driver()
                for watch in self.watches.reflectors.values():
                    tasks.create_task(watch.run())
                tasks.create_task(self.recorder.run())
                await self._run(tasks, at_the_end)
                if self._discovering is not None:
                    tasks.create_task(beside(self._made_discovery(self._discovering).run))
                if self._observing.sample_seconds:
                    self.observer = self._made_observer()
                    tasks.create_task(self.observer.run())
                tasks.create_task(self.gpus.look())
                tasks.create_task(self.gpus.listen())

    async def drain(self) -> None:
        """Before the end: the node says that it drains, and events that are not sent yet are sent."""
        events = self.recorder.drain(EVENTS_SECONDS)
        if self.publisher is None:
            await events
        else:
            await asyncio.gather(self.publisher.drain(DRAIN_SECONDS), events)

    async def _run(self, tasks: asyncio.TaskGroup, at_the_end: contextlib.ExitStack) -> None:
        """Starts everything: the driver first, then what is published and served."""
        raise NotImplementedError

    def _is_registered(self) -> bool:
        """Whether kubelet knows everything that is served."""
        raise NotImplementedError

    def _offered(self) -> Offered | None:
        """What this node offers now, for the observer."""
        return self.publisher.wants if self.publisher is not None else None

    def _made_discovery(self, config: DiscoveryConfig) -> Discovery:
        """And its count is on the metrics page."""

        def sharing() -> Sharing | None:
            offered = self._offered()
            return labels.sharing(offered.facts) if offered is not None else None

        discovery = Discovery(
            config, self.api, self.gpus, self.this_node, self._backend, sharing=sharing,
            mig_strategy=self._mig_strategy, root=self._root,
        )  # fmt: skip
        if self.publisher is not None:
            self.publisher.listeners.append(lambda _: discovery.look())
        done = self.sight.done
        self.sight.done = lambda: {**done(), "labels": discovery.writer.writes}
        return discovery

    def _mig_strategy(self) -> str:
        """As NVIDIA's flag of that name."""
        return labels.NONE

    def _made_observer(self) -> Observer:
        """And its counts are on the metrics page."""
        observer = Observer(
            self._observing, self.node, self.api, self._backend, self.gpus, self.pods, self.this_node, self._offered,
            self.recorder, self._owners,
        )  # fmt: skip
        done = self.sight.done
        self.sight.done = lambda: {**done(), "gpunode": observer.gpunode.writes}
        if (influx := observer.influx) is not None:
            self.sight.influx, self.sight.influx_waiting = influx.outcomes, lambda: influx.writer.waiting
        return observer

    def _ages(self) -> dict[str, float]:
        """Nobody is asked anything on a node without a driver."""
        if self.gpus.absent:
            return {}
        watches = {name: watch.age() for name, watch in self.watches.reflectors.items()}
        return {**watches, "driver": self.gpus.silent_for()}

    def _usage(self) -> Usage | None:
        return self.observer.sampler.usage if self.observer is not None else None

    def _counted(self) -> Counted:
        over = self.observer.overuse if self.observer is not None else None
        return Counted(
            self.gpus.xids,
            self.gpus.last_xid,
            {one.key: one.beyond for one in over.current} if over else {},
            over.evictions if over else 0,
        )

    def _waits_for(self) -> str:
        if not self.gpus.devices:
            return f"the driver: {self.gpus.failure.what}" if self.gpus.failure else "the driver"
        return self.watches.waits_for() or self._last_wait

    async def _lock_kubelets_folder(self, folder: Path, at_the_end: contextlib.ExitStack) -> Coroutine[Any, Any, None]:
        """Before anything is published: while another plugin runs, this process must not change the node. Returns what
        keeps the lock."""
        self._last_wait = "kubelet's device-plugins folder"
        lock = await kubelet_folder.lock(folder, self.node, START_SECONDS)
        at_the_end.callback(os.close, lock)
        return kubelet_folder.keep_locked(folder, self.node, lock)


async def run(part: Part, backend: Backend, host: str, port: int, settings: dict[str, Any]) -> signal.Signals:
    """Runs until a signal comes, and returns it. `settings` are for the log."""
    signals = ending()
    listening = await http.serve_probes(host, port, part.dead, part.not_ready, part.exporter.page)
    logger.info("listening", **settings | {"port": listening.addresses[0][1]})
    work, stop = asyncio.create_task(part.run()), asyncio.create_task(signals.get())
    try:
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            logger.info("draining")
            await part.drain()
    finally:
        for task in (work, stop):
            task.cancel()
        ended, _ = await asyncio.gather(work, stop, return_exceptions=True)
        await listening.cleanup()
        await backend.close()
    if isinstance(ended, Exception):
        raise first(ended)
    return stop.result()


def first(error: Exception) -> Exception:
    """The error of the task that failed first: that is the one people should read."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
