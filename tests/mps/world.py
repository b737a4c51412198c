"""A node with MPS whose driver is in memory and whose control program is the stand-in; time is short."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from gpushare.core.facts import objects
from gpushare.core.facts.mps import status
from gpushare.core.facts.mps.status import Status
from gpushare.gpu import simulated
from gpushare.gpu.compute_mode import DEFAULT, Modes, NotAllowed
from gpushare.gpu.device import Device
from gpushare.mps import modes as modes_file
from gpushare.mps.control import Control
from gpushare.mps.files import Places
from gpushare.mps.supervisor import Supervisor
from gpushare.obs.errors import UserError, not_asked
from tests.support.mps import stand_in
from tests.support.mps.stand_in import StandIn

SIZES = (16276, 40536)


class FakeGpus:
    """`by_uuid`: their modes. `denied`: only root may set them; `failure`: the driver does not answer."""

    def __init__(self, *sizes: int, driver: str = "550.54.14") -> None:
        self.listed = [simulated.device(i, f"GPU-{i}", size) for i, size in enumerate(sizes or SIZES)]
        self.by_uuid = {device.uuid: DEFAULT for device in self.listed}
        self.driver, self.denied = driver, False
        self.failure: UserError | None = None
        self.refuses: Mapping[str, str] = {}  # sentences by uuid
        self.set: list[tuple[str, int]] = []  # what was set, in that order

    async def devices(self) -> list[Device]:
        self._check()
        return self.listed

    async def modes(self) -> Modes:
        self._check()
        return Modes(self.driver, dict(self.by_uuid), {})

    async def set_mode(self, uuid: str, mode: int) -> None:
        self._check()
        if self.denied:
            raise NotAllowed("this process may not set the compute mode of GPUs", uuid, "root", 3)
        if uuid in self.refuses:
            raise not_asked(f"the compute mode of {uuid} cannot be set", self.refuses[uuid], "nvidia-smi")
        self.set.append((uuid, mode))
        self.by_uuid[uuid] = mode

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure


class Heard:
    """Notices, kept."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def lost(self, why: str) -> None:
        self.said.append(("lost", why))

    def fails(self, why: str) -> None:
        self.said.append(("fails", why))

    def works(self) -> None:
        self.said.append(("works", ""))


class Node:
    """Folders below `folder`, the fake driver, and the program."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(folder / "pipe", folder / "state")
        self.gpus, self.heard, self.replicas = FakeGpus(), Heard(), 1
        self.program = StandIn(self.places.pipe)
        self.path = str(stand_in.install(folder / "bin").parent)

    def control(self, limit: float = 5.0) -> Control:
        return Control(self.places.pipe, self.places.log, path=self.path, limit=limit)

    def supervisor(self, limit: float = 5.0) -> Supervisor:
        made = modes_file.Modes(self.gpus, self.places.state)
        return Supervisor(self.control(limit), made, self.places, self.heard, lambda: self.replicas)  # type: ignore[arg-type]

    def status(self) -> Status | None:
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode((self.places.state / status.FILE).read_bytes(), type=Status)
        return None

    @property
    def is_ready(self) -> bool:
        return self.places.ready.exists()


@contextlib.asynccontextmanager
async def at_work(supervisor: Supervisor) -> AsyncIterator["asyncio.Task[None]"]:
    """Runs it, and stops it at the end as a signal would."""
    task = asyncio.create_task(supervisor.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await supervisor.stop()


def pod(name: str, resource: str = "", phase: str = "Running") -> objects.Pod:
    """One that asks for one of that resource."""
    needs = objects.ResourceNeeds(limits={resource: "1"}) if resource else None
    return objects.Pod(
        objects.Metadata(name=name, namespace="default", uid=f"uid-{name}"),
        objects.PodSpec(containers=[objects.Container(name="main", resources=needs)]),
        objects.PodStatus(phase=phase),
    )
