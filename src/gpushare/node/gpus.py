"""The GPUs of this node as the driver shows them, looked at again and again.

Asks a `gpu.device.Backend` every few seconds, waits for its reports of errors meanwhile, and lets `gpu.health` judge.
Who publishes listens. A driver that does not answer is not believed to be well: after the second time in a row all its
GPUs are sick.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from gpushare.gpu.device import Backend, Device
from gpushare.gpu.health import Health
from gpushare.obs import log
from gpushare.obs.errors import UserError

LOOK_SECONDS = 5.0
FAILURES = 2  # in a row; one may be a busy moment
LISTEN_SECONDS = 1.0  # between two waits for errors, at least: a driver that cannot wait must not keep us busy

logger = log.get(__name__)


class Gpus:
    """`devices` are those there now; `sick` also names those that are gone. Listeners are told after each change."""

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.devices: list[Device] = []
        self.sick: dict[str, str] = {}
        self.failure: UserError | None = None  # of the last look
        self.listeners: list[Callable[[], None]] = []
        self._backend, self._clock, self._sleep = backend, clock, sleep
        self._health = Health()
        self._failures = 0
        self._noted: tuple[str, ...] = ()
        self._answered = clock()

    def silent_for(self) -> float:
        """Seconds since the driver last answered."""
        return self._clock() - self._answered

    async def begin(self, limit: float) -> None:
        """The first look. A driver may still be loading, but not for ever."""
        until = self._clock() + limit
        await self._look()
        while self.failure is not None:
            if self._clock() >= until:
                raise self.failure
            await self._sleep(min(LOOK_SECONDS, limit / 10))
            await self._look()
        for device in self.devices:
            logger.info("GPU", index=device.index, uuid=device.uuid, model=device.name, mib=device.memory_mib)

    async def look(self) -> None:
        """For ever."""
        while True:
            await self._sleep(LOOK_SECONDS)
            await self._look()

    async def listen(self) -> None:
        """For ever: errors that the driver reports count at once."""
        while True:
            begun = self._clock()
            try:
                reports = await self._backend.xids()
            except UserError:
                reports = []  # the next look says it
            for report in reports:
                logger.warn("the driver reports an error", xid=report.code, gpu=report.uuid or "all")
                self._health.xid(report, self._clock())
            self._judge(self.devices)
            if not reports:
                await self._sleep(max(LISTEN_SECONDS - (self._clock() - begun), 0.0))

    async def _look(self) -> None:
        try:
            devices = await self._backend.devices()
        except UserError as failure:
            self._failures += 1
            if self.failure is None or self.failure.what != failure.what:
                logger.warn(failure.what, **failure.fields())
            self.failure = failure
            if self._failures >= FAILURES:
                self._health.unseen(failure.what, self._clock())
            self._judge(self.devices)
            return
        self.failure, self._failures, self._answered = None, 0, self._clock()
        for note in self._backend.notes:
            if note not in self._noted:
                logger.warn("the driver does not tell everything", what=note)
        self._noted = tuple(self._backend.notes)
        self._health.see(devices, self._clock())
        self._judge(devices)

    def _judge(self, devices: list[Device]) -> None:
        before = (self.devices, self.sick)
        self.devices, self.sick = devices, self._health.sick()
        if (self.devices, self.sick) == before:
            return
        for uuid in self.sick.keys() - before[1].keys():
            logger.warn("GPU is sick, nothing new goes there", gpu=uuid, why=self.sick[uuid])
        for uuid in before[1].keys() - self.sick.keys():
            logger.info("GPU is well again", gpu=uuid)
        for listener in self.listeners:
            listener()
