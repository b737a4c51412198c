"""Keeps the daemon running: starts it in the right order, asks it every few seconds, and starts it again.

Everything that goes wrong ends one life of the daemon with one sentence (`Trouble`). That sentence is in the status
file, in events and in the log. After a pause, longer each time, the next life begins. A UserError is for a person: the
process ends with it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gpushare.core.facts.mps import status
from gpushare.core.facts.mps.status import State, Status
from gpushare.gpu.device import Device
from gpushare.kube.loop import Backoff
from gpushare.mps import files
from gpushare.mps.commands import Sizes, summary
from gpushare.mps.control import Control, Trouble
from gpushare.mps.daemon import Daemon
from gpushare.mps.files import Places
from gpushare.mps.modes import Modes
from gpushare.mps.notices import Notices
from gpushare.obs import log
from gpushare.obs.errors import UserError

LOOK_SECONDS: Final = 5.0
MODES_SECONDS: Final = 60.0  # between two looks at compute modes
RETRY_SECONDS: Final = (1.0, 60.0)
PROVEN_SECONDS: Final = 60.0  # a daemon that has worked so long starts again quickly
END_SECONDS: Final = 0.5  # in which a daemon that answers no more may have ended
STUCK_SECONDS: Final = 180.0  # without a step of ours; then kubelet is asked to restart this process
STARTING: Final = "the MPS daemon is being started"
STOPPING: Final = "gpushare mps is being stopped"
KILLED_BEFORE: Final = "gpushare mps was killed, and the MPS daemon with it"
STUCK: Final = "no look at the MPS daemon for {seconds:.0f} s"

logger = log.get(__name__)


class Supervisor:
    """`replicas`: into how many parts GPUs are divided now. `restarts`: lives of the daemon that ended."""

    def __init__(
        self,
        control: Control,
        modes: Modes,
        places: Places,
        notices: Notices,
        replicas: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.state: State = "starting"
        self.why = STARTING
        self.restarts = self.servers = 0
        self._control, self._modes, self._places, self._notices = control, modes, places, notices
        self._replicas, self._clock, self._now, self._sleep = replicas, clock, now, sleep
        self._retry = Backoff(RETRY_SECONDS)
        self._daemon: Daemon | None = None
        self._devices: Sequence[Device] = ()
        self._divided = 1
        self._untold = False  # clients of the process before this one may have lost their daemon
        self._limited = False  # the daemon was told limits of memory
        self._since, self._up_at, self._stepped = now(), 0.0, clock()
        self._look = asyncio.Event()

    def look(self) -> None:
        """At once: what the daemon should do may have changed."""
        self._look.set()

    def dead(self) -> str:
        silent = self._clock() - self._stepped
        return STUCK.format(seconds=silent) if silent > STUCK_SECONDS else ""

    async def run(self) -> None:
        """For ever. Raises UserError if a person has to do something."""
        self._control.program()  # before anything is changed
        self._untold = files.said_up(self._places)
        while True:
            self._stepped = self._clock()
            try:
                await self._life()
            except Trouble as trouble:
                await self._lost(str(trouble))
            await self._sleep(self._retry.delay())

    async def stop(self, why: str = STOPPING) -> None:
        """Nobody is served any more; then the daemon ends, and the modes are put back. A report that cannot be written
        is no reason to leave them as they are: the old one is soon too old."""
        clients = self.state == "up"
        try:
            self._set("down", why)
        except UserError as error:
            logger.error(error.what, **error.fields())
        if clients:
            self._notices.lost(why)
        if self._daemon is not None:
            await self._daemon.quit()
            self._daemon = None
        await self._modes.put_back()

    async def _life(self) -> None:
        files.prepare(self._places)
        self._set("starting" if self.why == STARTING else "down", self.why)
        self._devices = await self._modes.take()
        self._daemon = Daemon(self._control, self._places)
        await self._daemon.begin()
        if self._untold and not self._daemon.found:
            self._notices.lost(KILLED_BEFORE)
        self._untold = False
        self._divided, self._limited = 1, self._daemon.found  # what one that ran already was told is unknown
        if self._daemon.found or self._replicas() != 1:
            await self._divide(self._daemon)
        self.servers = len(await self._control.servers())
        self._up_at = self._clock()
        self._set("up", "")
        logger.info("the MPS daemon serves clients", pid=self._daemon.pid, found=self._daemon.found)
        self._notices.works()
        await self._watch(self._daemon)

    async def _watch(self, daemon: Daemon) -> None:
        """Until Trouble."""
        ended, modes = asyncio.create_task(daemon.exited()), asyncio.create_task(self._keep_modes())
        try:
            while True:
                await self._pause(ended)
                if ended.done():
                    await ended
                try:
                    await self._ask(daemon)
                except Trouble:
                    await asyncio.wait([ended], timeout=END_SECONDS)
                    if ended.done():
                        await ended  # why it has ended says more than that it does not answer
                    raise
                self._stepped = self._clock()
                if self._stepped - self._up_at > PROVEN_SECONDS:
                    self._retry.reset()
                self._give_sign_of_life()
        finally:
            for task in (ended, modes):
                task.cancel()
            await asyncio.gather(ended, modes, return_exceptions=True)

    def _give_sign_of_life(self) -> None:
        """One that cannot be written is no reason to end a daemon with clients: the node part notices the silence."""
        try:
            self._set("up", "")
        except UserError as error:
            logger.error(error.what, **error.fields())

    async def _ask(self, daemon: Daemon) -> None:
        self.servers = len(await self._control.servers())
        percent = await self._control.percentage()
        if self._replicas() != self._divided or int(percent) != _threads(self._divided):
            await self._divide(daemon)

    async def _keep_modes(self) -> None:
        """For ever: a driver that was loaded again has forgotten them. One that is silent for a while is no reason to
        end a daemon that works."""
        while True:
            await self._sleep(MODES_SECONDS)
            try:
                self._devices = await self._modes.take()
            except (Trouble, UserError) as error:
                logger.warn("compute modes cannot be looked at", why=str(error))

    async def _pause(self, ended: "asyncio.Task[None]") -> None:
        asked = asyncio.create_task(self._look.wait())
        pause = asyncio.ensure_future(self._sleep(LOOK_SECONDS))
        try:
            await asyncio.wait([ended, asked, pause], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._look.clear()
            for task in (asked, pause):
                task.cancel()

    async def _divide(self, daemon: Daemon) -> None:
        """Without replicas every client may use all: then memory is limited to all of it, if it was limited before."""
        sizes = Sizes(self._replicas(), tuple([(device.index, device.memory_mib) for device in self._devices]))
        await daemon.divide(sizes, limits=self._limited or sizes.replicas > 1)
        self._divided, self._limited = sizes.replicas, sizes.replicas > 1
        logger.info("GPUs are divided", replicas=sizes.replicas, threads=sizes.threads, memory=summary(sizes))

    async def _lost(self, why: str) -> None:
        """The daemon does not work. Its processes are ended: they would hold the GPUs."""
        served = self.state == "up"
        self._set("down", why)
        logger.error("the MPS daemon does not work", why=why, served=served)
        self.servers = 0
        if served:
            self.restarts += 1
            self._notices.lost(why)
        else:
            self._notices.fails(why)
        if self._daemon is not None:
            await self._daemon.end()
            self._daemon = None

    def _set(self, state: State, why: str) -> None:
        now, pid = self._now(), self._daemon.pid if self._daemon is not None else 0
        if state != self.state:
            self._since = now
        self.state, self.why = state, why
        files.report(self._places, Status(status.VERSION, state, why, self._since, pid, now, self._divided))


def _threads(replicas: int) -> int:
    return Sizes(replicas, ()).threads
