"""`gpushare mps`: wiring, read top to bottom.

It needs the driver and its control program. An API server that is away is not waited for: MPS works without it, only
events and equal shares of replicas come later.
"""

import asyncio
import os
import signal
from typing import Final, NamedTuple

from gpushare.gpu import absence
from gpushare.gpu.nvml import Nvml
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.kube.events import Recorder
from gpushare.mps import files
from gpushare.mps.cluster import Watches
from gpushare.mps.control import Control
from gpushare.mps.files import Places
from gpushare.mps.logs import Follower
from gpushare.mps.metrics import Metrics
from gpushare.mps.modes import Modes
from gpushare.mps.supervisor import Supervisor
from gpushare.mps.tidings import Tidings
from gpushare.obs import http, log, metrics
from gpushare.obs.beside import beside
from gpushare.obs.errors import UserError, not_asked
from gpushare.obs.signals import ending

SYNC_SECONDS: Final = 5.0  # for the API server to say into how many parts GPUs are divided, and who are clients
EVENTS_SECONDS: Final = 1.0  # for events that are not sent yet when the process ends

logger = log.get(__name__)


class Config(NamedTuple):
    """`port` 0: any free port. `path`: where the control program is looked for; None: as a shell does.
    `fail_on_init_error` False: a node without a driver is no error."""

    node: str
    host: str = "127.0.0.1"
    port: int = 12349
    places: Places = Places()
    path: str | None = None
    fail_on_init_error: bool = True


class Mps:
    """All parts, made but not running. `absent`: this node has no driver, and that is no error."""

    def __init__(self, config: Config, api: client.Api, gpus: Nvml) -> None:
        self.absent = False
        self.recorder = Recorder(api)
        self.watches = Watches(api, config.node)
        self.tidings = Tidings(self.recorder, config.node, self.watches.clients)
        control = Control(config.places.pipe, config.places.log, path=config.path)
        self.supervisor = Supervisor(
            control, Modes(gpus, config.places.state), config.places, self.tidings, lambda: self.watches.node.replicas
        )
        self.watches.node.changed = self.supervisor.look
        self.follower = Follower(config.places.log)
        self.metrics = Metrics(self.supervisor, self.recorder)
        self._places, self._gpus, self._idles = config.places, gpus, not config.fail_on_init_error

    def dead(self) -> str:
        return "" if self.absent else self.supervisor.dead()

    def not_ready(self) -> str:
        return "" if self.absent or self.supervisor.state == "up" else self.supervisor.why

    async def run(self) -> None:
        """Until cancelled, or a person has to do something."""
        if self._idles:
            await self._wait_for_driver()
        async with asyncio.TaskGroup() as tasks:
            watches = (self.watches.of_node, self.watches.of_pods)
            for watch in watches:
                tasks.create_task(watch.run())
            tasks.create_task(self.recorder.run())
            tasks.create_task(beside(self.follower.run))
            problem = files.shm_problem(self._places)
            if problem:
                logger.warn(problem)
                self.tidings.notice(problem)
            await asyncio.wait([tasks.create_task(one.wait_synced()) for one in watches], timeout=SYNC_SECONDS)
            await self.supervisor.run()

    async def _wait_for_driver(self) -> None:
        """As long as there is none at all. One that is there and broken is left to the supervisor."""
        async for _ in absence.looks(self._gpus):
            self.absent = True
        self.absent = False


async def run(config: Config, access: Access) -> signal.Signals:
    """Runs until a signal comes, and returns it. In any case the daemon is ended and the modes are put back."""
    signals, gpus = ending(), Nvml()
    lock = files.lock(config.places)
    try:
        async with client.connect(access) as api:
            mps = Mps(config, api, gpus)
            registry = mps.metrics.registry
            listening = await http.serve_probes(
                config.host, config.port, mps.dead, mps.not_ready, lambda: metrics.exposition(registry)
            )
            logger.info("listening", port=listening.addresses[0][1], node=config.node, pipe=str(config.places.pipe))
            try:
                return await _until_ended(mps, signals)
            finally:
                await listening.cleanup()
    finally:
        await gpus.close()
        os.close(lock)


async def _until_ended(mps: Mps, signals: "asyncio.Queue[signal.Signals]") -> signal.Signals:
    work, stop = asyncio.create_task(mps.run()), asyncio.create_task(signals.get())
    await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
    failure = _first(work.exception()) if work.done() and not work.cancelled() else None
    logger.info("stopping", why=str(failure or "a signal"))
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    telling = asyncio.create_task(mps.recorder.run())
    try:
        if isinstance(failure, UserError):
            await mps.supervisor.stop(f"{failure.what}: {failure.why}")
        else:
            await mps.supervisor.stop()
        await mps.recorder.drain(EVENTS_SECONDS)
    finally:
        for task in (telling, stop):
            task.cancel()
        await asyncio.gather(telling, stop, return_exceptions=True)
    if failure is not None:
        raise failure
    return stop.result()


async def restore(places: Places) -> None:
    """Only puts the compute modes back that a supervisor recorded and could not put back."""
    lock, gpus = files.lock(places), Nvml()
    try:
        if not await Modes(gpus, places.state).put_back():
            raise not_asked(
                "not every compute mode could be put back",
                "the log says which",
                "nvidia-smi -i GPU -c MODE on the node",
            )
    finally:
        await gpus.close()
        os.close(lock)


def _first(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
