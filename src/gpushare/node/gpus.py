"""The GPUs of this node: asks the driver every 5 seconds, and waits for its error reports meanwhile.

`gpu/health.py` decides which GPUs are unhealthy. If the driver fails to answer twice in a row, all its GPUs are.

What happens next: after each change the listeners are called. The publisher is one of them
(`node/publishing/publisher.py`); it asks `node/publishing/desired.py` what the node object has to say now.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from gpushare.gpu import absence
from gpushare.gpu.device import Backend, Device
from gpushare.gpu.health import Health
from gpushare.obs import log
from gpushare.obs.errors import UserError

LOOK_SECONDS = 5.0
FAILURES = 2  # in a row, until all GPUs count as unhealthy; one failure may be a busy moment
LISTEN_SECONDS = 1.0  # between two waits for errors, at least: some drivers return at once

logger = log.get(__name__)


class Gpus:
    """`devices`: those the driver shows now. `unhealthy`: reasons by uuid, also of GPUs that are gone. `xids`: how
    often the driver reported an error, by uuid and code. `absent`: this node has no driver, and that is no error.
    Listeners are called after each change."""

    def __init__(
        self,
        backend: Backend,
        health: Health | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.devices: list[Device] = []
        self.unhealthy: dict[str, str] = {}
        self.absent = False
        self.failure: UserError | None = None  # of the last question to the driver
        self.listeners: list[Callable[[], None]] = []
        self.xids: Counter[tuple[str, int]] = Counter()
        self.last_xid: dict[str, int] = {}  # by uuid
        self._backend, self._clock, self._sleep = backend, clock, sleep
        self._health = health or Health()
        self._failures = 0
        self._noted: tuple[str, ...] = ()
        self._answered = clock()

    def silent_for(self) -> float:
        """Seconds since the driver last answered."""
        return self._clock() - self._answered

    async def wait_for_driver(self) -> None:
        """As long as there is none at all. One that is there and broken is left to `begin`."""
        async for _ in absence.looks(self._backend, self._sleep):
            self.absent, self._answered = True, self._clock()
        self.absent, self._answered = False, self._clock()

    async def begin(self, limit: float) -> None:
        """Asks for the first time. Waits for a driver that is still loading, up to `limit` seconds."""
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
        """For ever: an error that the driver reports counts at once."""
        while True:
            begun = self._clock()
            try:
                reports = await self._backend.xids()
            except UserError:
                reports = []  # `look` reports the failure
            for report in reports:
                logger.warn("the driver reports an error", xid=report.code, gpu=report.uuid or "all")
                self._health.xid(report, self._clock())
                for uuid in [device.uuid for device in self.devices] if report.uuid is None else [report.uuid]:
                    self.xids[uuid, report.code] += 1
                    self.last_xid[uuid] = report.code
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
                logger.warn("the driver does not report everything", what=note)
        self._noted = tuple(self._backend.notes)
        self._health.see(devices, self._clock())
        self._judge(devices)

    def _judge(self, devices: list[Device]) -> None:
        before = (self.devices, self.unhealthy)
        self.devices, self.unhealthy = devices, self._health.unhealthy()
        if (self.devices, self.unhealthy) == before:
            return
        for uuid in self.unhealthy.keys() - before[1].keys():
            logger.warn("GPU is unhealthy, no new pods go there", gpu=uuid, why=self.unhealthy[uuid])
        for uuid in before[1].keys() - self.unhealthy.keys():
            logger.info("GPU is healthy again", gpu=uuid)
        for listener in self.listeners:
            listener()
