"""Simulated GPUs, for the embedded cluster only: nothing on a real node uses them.

They answer as `nvml` does; their name says that they are simulated. Tests and the demo remove GPUs, put them back, and
report errors.
"""

import asyncio
from collections.abc import Iterable

from gpushare.gpu.device import Device, Link, Xid
from gpushare.gpu.sample import Pass, Sample
from gpushare.obs.errors import UserError

WAIT_SECONDS = 2.0
NAME = "simulated GPU"
DRIVER = "simulated"
MIB = 1024 * 1024


def device(index: int, uuid: str, memory_mib: int) -> Device:
    """A simulated GPU that is healthy."""
    return Device(
        index=index,
        uuid=uuid,
        minor=index,
        bus=f"00000000:{index + 1:02X}:00.0",
        name=NAME,
        memory_mib=memory_mib,
        capability="8.0",
    )


class Simulated:
    """GPUs kept in memory. A `gpu.device.Backend`."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.notes: tuple[str, ...] = ()
        self._devices = {device.uuid: device for device in devices}
        self._reported: asyncio.Queue[Xid] = asyncio.Queue()
        self._failure: UserError | None = None

    def put(self, device: Device) -> None:
        """A new GPU, or a known one that changed: with a fault, with MIG enabled, or healthy again."""
        self._devices[device.uuid] = device

    def lose(self, uuid: str) -> None:
        """That GPU is gone from the driver's list."""
        del self._devices[uuid]

    def report(self, xid: Xid) -> None:
        """The driver reports an error."""
        self._reported.put_nowait(xid)

    def fail(self, failure: UserError | None) -> None:
        """From now on every call fails with this error; None: calls work again."""
        self._failure = failure

    async def devices(self) -> list[Device]:
        self._check()
        return sorted(self._devices.values(), key=lambda device: device.index)

    async def links(self) -> list[Link]:
        """None is known."""
        self._check()
        return []

    async def sample(self) -> Pass:
        """Idle GPUs."""
        self._check()
        return Pass(DRIVER, tuple([_idle(device) for device in await self.devices()]))

    async def xids(self) -> list[Xid]:
        self._check()
        try:
            xids = [await asyncio.wait_for(self._reported.get(), WAIT_SECONDS)]
        except TimeoutError:
            return []
        while not self._reported.empty():
            xids.append(self._reported.get_nowait())
        return xids

    async def close(self) -> None:
        pass

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _idle(device: Device) -> Sample:
    total = device.memory_mib * MIB
    return Sample(
        device.uuid,
        device.index,
        memory_total=total,
        memory_used=0,
        memory_free=total,
        gpu_util=0,
        temperature=30,
        power=25_000,
        processes=(),
    )
