"""Simulated GPUs, for the embedded cluster only: nothing on a real node uses them.

They answer as `nvml` does; their name says that they are simulated. Tests and the demo remove GPUs, put them back, and
report errors. They also say what runs on them; the figures of that are made up (`simulated_use`).
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpushare.gpu import simulated_use
from gpushare.gpu.device import Device, Link, Versions, Xid
from gpushare.gpu.sample import Pass
from gpushare.gpu.simulated_use import SimulatedProcess
from gpushare.obs.errors import UserError

WAIT_SECONDS = 2.0
NAME = "simulated GPU"
DRIVER = "simulated"

Workload = Callable[[], Mapping[str, Sequence[SimulatedProcess]]]  # what runs now, by uuid


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
    """GPUs kept in memory. A `gpu.device.Backend`. They are idle until `workload` says what runs on them."""

    def __init__(
        self, devices: Iterable[Device], clock: Callable[[], float] = time.monotonic, links: Iterable[Link] = ()
    ) -> None:
        self.notes: tuple[str, ...] = ()
        self.workload: Workload = dict
        self._clock, self._links = clock, tuple(links)
        self._sampled_at = clock()
        self._energy: dict[str, int] = {}  # in mJ, by uuid
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
        self._check()
        return list(self._links)

    async def versions(self) -> Versions:
        self._check()
        return Versions(DRIVER, "")

    async def sample(self) -> Pass:
        """Figures that are made up. Nothing was measured."""
        self._check()
        running, now = self.workload(), self._clock()
        passed, self._sampled_at = now - self._sampled_at, now
        gpus = []
        for device in await self.devices():
            before = self._energy.get(device.uuid, 0)
            gpu = simulated_use.sample(device, running.get(device.uuid, ()), now, before)
            self._energy[device.uuid] = before + round((gpu.power or 0) * passed)
            gpus.append(gpu)
        return Pass(DRIVER, tuple(gpus))

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
