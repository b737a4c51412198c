"""Simulated GPUs answer as real ones do, and say what they are."""

import msgspec
import pytest

from gpushare.gpu import simulated
from gpushare.gpu.device import Backend, Xid
from gpushare.gpu.simulated import Simulated
from gpushare.gpu.simulated_use import MIB, SimulatedProcess
from gpushare.obs.errors import UserError


@pytest.fixture
def gpus() -> Simulated:
    return Simulated([simulated.device(0, "a", 16276), simulated.device(1, "b", 40536)])


async def test_their_name_says_what_they_are(gpus: Backend) -> None:
    assert {device.name for device in await gpus.devices()} == {"simulated GPU"}


async def test_they_can_be_lost_and_come_back_in_their_place(gpus: Simulated) -> None:
    gpus.lose("a")
    assert [device.uuid for device in await gpus.devices()] == ["b"]
    gpus.put(simulated.device(0, "a", 16276))
    assert [device.uuid for device in await gpus.devices()] == ["a", "b"]


async def test_what_is_reported_arrives_once_and_together(gpus: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "WAIT_SECONDS", 0.01)
    gpus.report(Xid("a", 79))
    gpus.report(Xid(None, 48))
    assert await gpus.xids() == [Xid("a", 79), Xid(None, 48)]
    assert await gpus.xids() == []


async def test_every_question_can_be_made_to_fail(gpus: Simulated) -> None:
    gpus.fail(UserError("the driver is away", "a test says so", "wait"))
    for ask in (gpus.devices, gpus.xids, gpus.sample):
        with pytest.raises(UserError, match="the driver is away"):
            await ask()
    gpus.fail(None)
    assert len(await gpus.devices()) == 2


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def busy(clock: Clock) -> Simulated:
    """Two processes on the first GPU, nothing on the second."""
    made = Simulated([simulated.device(0, "a", 16276), simulated.device(1, "b", 40536)], clock)
    made.workload = lambda: {"a": [SimulatedProcess(11, 6000, 40), SimulatedProcess(12, 4000, 20)]}
    return made


async def test_an_idle_one_tells_everything_and_does_not_change(busy: Simulated, clock: Clock) -> None:
    before = (await busy.sample()).gpus[1]
    clock.now += 60
    after = (await busy.sample()).gpus[1]
    assert [field for field in before.__struct_fields__ if getattr(before, field) is None] == []
    assert (before.memory_used, before.gpu_util, before.processes) == (0, 0, ())
    assert msgspec.structs.replace(after, energy=before.energy) == before


async def test_what_runs_on_it_uses_memory_and_time(busy: Simulated) -> None:
    gpu, idle = (await busy.sample()).gpus
    assert gpu.processes is not None
    assert [process.pid for process in gpu.processes] == [11, 12]
    assert 0 < gpu.memory_used <= 10_000 * MIB  # type: ignore[operator]  # it tells everything
    assert gpu.memory_used == sum(process.memory or 0 for process in gpu.processes)
    assert gpu.gpu_util == sum(process.sm or 0 for process in gpu.processes)
    assert gpu.memory_total == gpu.memory_used + gpu.memory_free + gpu.memory_reserved  # type: ignore[operator]
    for field in ("temperature", "power", "sm_clock"):
        assert getattr(gpu, field) > getattr(idle, field)


async def test_use_changes_with_time_and_is_the_same_at_the_same_time(busy: Simulated, clock: Clock) -> None:
    first = (await busy.sample()).gpus[0]
    assert (await busy.sample()).gpus[0] == first
    seen = set()
    for _ in range(30):
        clock.now += 5
        gpu = (await busy.sample()).gpus[0]
        assert gpu.gpu_util is not None
        assert 0 <= gpu.gpu_util <= 100
        seen.add((gpu.gpu_util, gpu.memory_used, gpu.temperature, gpu.power))
    assert len(seen) > 20


async def test_those_that_want_too_much_time_get_their_part(busy: Simulated) -> None:
    busy.workload = lambda: {"a": [SimulatedProcess(pid, 1000, 60) for pid in range(1, 6)]}
    gpu = (await busy.sample()).gpus[0]
    assert gpu.gpu_util is not None
    assert 90 <= gpu.gpu_util <= 100
    assert all(process.sm for process in gpu.processes or ())


async def test_they_never_use_more_memory_than_they_have(busy: Simulated) -> None:
    busy.workload = lambda: {"a": [SimulatedProcess(1, 20_000, 60)]}
    gpu = (await busy.sample()).gpus[0]
    assert gpu.memory_free == 0


async def test_energy_grows_with_power_and_time(busy: Simulated, clock: Clock) -> None:
    first = (await busy.sample()).gpus[1]
    clock.now += 10
    await busy.sample()
    second = (await busy.sample()).gpus[1]
    assert (first.energy, second.energy) == (0, 280_000)


async def test_a_lost_one_has_no_figures(busy: Simulated) -> None:
    busy.lose("a")
    assert [gpu.uuid for gpu in (await busy.sample()).gpus] == ["b"]
