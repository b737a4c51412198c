"""`gpushare validate --keep`: wiring, read top to bottom.

An API server that is away is not waited for: driver and toolkit are checked without it.
"""

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Final, NamedTuple

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, units
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import KubeError
from gpushare.kube.events import Recorder
from gpushare.kube.scraping.server import Listening, Server
from gpushare.obs import http, log, metrics
from gpushare.obs.signals import ending, until_signalled
from gpushare.validate import checks, readiness
from gpushare.validate.keeper import STUCK_SECONDS, Keeper
from gpushare.validate.machine.asking import Asking
from gpushare.validate.machine.host import Places
from gpushare.validate.metrics import Metrics, NodeStatus
from gpushare.validate.metrics import Sight as Figures
from gpushare.validate.node import Annotation, Sight
from gpushare.validate.notices import Notices
from gpushare.validate.ready_files import ReadyFiles
from gpushare.validate.rules import plugin
from gpushare.validate.workload import trial
from gpushare.validate.workload.check import Workload
from gpushare.validate.workload.trial import Trial

PORT: Final = 12352
END_SECONDS: Final = 5.0  # for the pod that is being tried, the annotation and events, when the process ends
STARTING: Final = "the first look is not over"
STUCK: Final = "the last look ended {seconds:.0f} s ago"

logger = log.get(__name__)


class Config(NamedTuple):
    """`port` 0: any free one. `status_listen`: where NVIDIA's node-status-exporter would answer; None: nowhere."""

    trial: trial.Config
    places: Places = Places()
    folder: Path = Path(names.VALIDATIONS_FOLDER)
    node_part: str = readiness.URL
    host: str = "127.0.0.1"
    port: int = PORT
    status_listen: Listening | None = None

    @property
    def node(self) -> str:
        return self.trial.node


class Validator:
    """All parts, made but not running."""

    def __init__(self, config: Config, api: client.Api) -> None:
        self.sight, self.recorder, self.files = Sight(api, config.node), Recorder(api), ReadyFiles(config.folder)
        self.annotation = Annotation(api, self.sight)
        self.driver = checks.Driver(config.places, Asking(config.places).ask, lambda: self.files.container_ready)
        self.workload = Workload(Trial(api, config.trial).run, self.sight.found, self._look_again)
        made: dict[str, checks.Check] = {
            "driver": self.driver,
            "toolkit": checks.Toolkit(config.places),
            "plugin": checks.Plugin(lambda: readiness.ask(config.node_part), self.sight.found),
            "mps": checks.Mps(self.sight.found),
            "workload": self.workload,
        }
        self.keeper = Keeper(
            made, self.files, self.annotation.say, Notices(self.recorder, config.node).tell,
            contents={"driver": self.driver.ready_file},
        )  # fmt: skip
        self.sight.listeners.append(self._look_at_offer)
        self._offer: tuple[object, ...] = ()
        figures = Figures(
            config.node, lambda: self.keeper.said, lambda: self.keeper.last_passed, self._devices,
            lambda: self.driver.pci,
        )  # fmt: skip
        self.metrics = Metrics(figures, self.recorder, lambda: self.annotation.writes)
        self.server: Server | None = None
        if config.status_listen is not None:
            page = NodeStatus(figures).registry
            self.server = Server(config.status_listen, config.node, api, lambda: metrics.exposition(page))

    def dead(self) -> str:
        silent = self.keeper.silent_for()
        return STUCK.format(seconds=silent) if silent > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        return self.keeper.failure or ("" if self.keeper.said else STARTING)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self.sight.watch.run(), self.recorder.run(), self.annotation.run(), self.keeper.run()):
                tasks.create_task(work)
            if self.server is not None:
                tasks.create_task(self.server.run())

    async def end(self) -> None:
        """Nothing of ours stays: no pod, no file, no annotation."""
        self.files.remove()
        telling = asyncio.create_task(self.recorder.run())
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self.annotation.remove()
                await self.workload.end()
                await self.recorder.drain(END_SECONDS)
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)

    def _look_again(self) -> None:
        self.keeper.wake()

    def _look_at_offer(self) -> None:
        """kubelet writes to the node every few seconds. Only what it sells makes a look worth while."""
        node = self.sight.node
        said = (node.metadata.annotations or {}).get(names.NODE_GPUS) if node is not None else None
        offer = (said, tuple(sorted((node.status.allocatable or {}).items())) if node is not None else ())
        if offer != self._offer:
            self._offer = offer
            self.keeper.wake()

    def _devices(self) -> int | None:
        node = self.sight.node
        facts = node_gpus.read(node, frozenset()) if node is not None else None
        if node is None or facts is None:
            return None
        return sum(units.number(node.status.allocatable, resource) for resource in plugin.resources(facts))


async def run(config: Config, access: Access) -> signal.Signals:
    """Runs until a signal comes, and returns it."""
    signals = ending()
    async with client.connect(access) as api:
        validator = Validator(config, api)
        registry = validator.metrics.registry
        listening = await http.serve_probes(
            config.host, config.port, validator.dead, validator.not_ready, lambda: metrics.exposition(registry)
        )
        logger.info(
            "listening", port=listening.addresses[0][1], node=config.node, host_root=str(config.places.root),
            ready_files=str(config.folder),
        )  # fmt: skip
        try:
            return await until_signalled(validator.run(), signals)
        finally:
            await validator.end()
            await listening.cleanup()
