"""The driver, asked again and again: what it says counts, and what it does not say counts against it."""

import pytest

from gpushare.gpu import absence, health
from gpushare.gpu.device import Device, Link, NoDriver, Versions, Xid
from gpushare.gpu.sample import Pass
from gpushare.gpu.simulated import Simulated
from gpushare.node import gpus, part
from gpushare.node.app import Node
from gpushare.node.gpus import Gpus
from gpushare.obs import errors
from gpushare.obs.errors import UserError
from tests.node import world
from tests.support import wait
from tests.support.scripted_api import FakeTime, serve_api
from tests.support.tasks import beside

ABSENT = NoDriver("libnvidia-ml.so.1 not found", "no driver", "load it", errors.CLUSTER_NOT_ASKED)
FAILURE = errors.not_asked("the driver does not answer", "timeout", "nvidia-smi on the node")


class Driver:
    """Answers what each test writes, one answer a question; the last one for ever."""

    def __init__(self, *answers: list[Device] | UserError) -> None:
        self.notes: tuple[str, ...] = ()
        self._answers = list(answers)
        self.asked = 0
        self.reports: list[list[Xid] | UserError] = []

    async def devices(self) -> list[Device]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, UserError):
            raise answer
        return answer

    async def links(self) -> list[Link]:
        raise NotImplementedError  # nobody asks here

    async def versions(self) -> Versions:
        raise NotImplementedError  # nobody asks here

    async def sample(self) -> Pass:
        raise NotImplementedError  # nobody asks here

    async def xids(self) -> list[Xid]:
        report = self.reports.pop(0) if self.reports else []
        if isinstance(report, UserError):
            raise report
        return report

    async def close(self) -> None: ...


async def test_a_driver_that_is_still_loading_is_waited_for() -> None:
    time, driver = FakeTime(), Driver(FAILURE, FAILURE, world.devices(8000))
    seen = Gpus(driver, clock=time.clock, sleep=time.sleep)
    await seen.begin(30.0)
    assert [device.memory_mib for device in seen.devices] == [8000]
    assert seen.failure is None
    assert driver.asked == 3


async def test_but_not_for_ever() -> None:
    time = FakeTime()
    with pytest.raises(UserError) as caught:
        await Gpus(Driver(FAILURE), clock=time.clock, sleep=time.sleep).begin(30.0)
    assert (caught.value.what, caught.value.why, caught.value.way) == (FAILURE.what, FAILURE.why, FAILURE.way)
    assert caught.value.code == 3
    assert 30.0 <= time.now - 1000.0 <= 40.0


async def test_a_machine_without_a_driver_is_looked_at_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    time, driver = FakeTime(), Driver(ABSENT, ABSENT, ABSENT, world.devices(8000))
    seen = Gpus(driver, clock=time.clock, sleep=time.sleep)
    await seen.wait_for_driver()
    assert time.slept == [60.0] * 3
    assert caplog.messages == [absence.NO_DRIVER]
    assert (seen.absent, seen.failure, seen.silent_for()) == (False, None, 0.0)
    await seen.begin(30.0)
    assert seen.devices


async def test_a_driver_that_is_there_and_broken_is_not_absent() -> None:
    time = FakeTime()
    seen = Gpus(Driver(ABSENT, FAILURE), clock=time.clock, sleep=time.sleep)
    await seen.wait_for_driver()
    assert not seen.absent
    with pytest.raises(UserError, match=FAILURE.what):
        await seen.begin(30.0)


async def test_one_failure_is_a_busy_moment_and_two_are_an_outage() -> None:
    time = FakeTime()
    seen = Gpus(Driver(world.devices(8000), FAILURE, world.devices(8000), FAILURE), clock=time.clock, sleep=time.sleep)
    changes: list[dict[str, str]] = []
    seen.listeners.append(lambda: changes.append(dict(seen.unhealthy)))
    await seen.begin(30.0)
    async with beside(seen.look()):
        await wait.eventually(lambda: seen.unhealthy)
    assert changes == [{}, {"GPU-0": FAILURE.what}]
    assert seen.failure is FAILURE


async def test_a_gpu_without_a_problem_for_a_while_is_healthy_again() -> None:
    time = FakeTime()
    seen = Gpus(Driver(world.devices(8000), [], world.devices(8000)), clock=time.clock, sleep=time.sleep)
    changes: list[tuple[float, dict[str, str]]] = []
    seen.listeners.append(lambda: changes.append((time.now, dict(seen.unhealthy))))
    await seen.begin(30.0)
    async with beside(seen.look()):
        await wait.eventually(lambda: changes and not changes[-1][1] and len(changes) > 2)
    (_, first), (lost, unhealthy), *_, (well, last) = changes
    assert (first, unhealthy, last) == ({}, {"GPU-0": health.LOST}, {})
    assert well - lost >= health.RECOVERY_SECONDS


async def test_reports_count_at_once_and_failing_to_listen_is_survived() -> None:
    time, driver = FakeTime(), Driver(world.devices(8000, 8000))
    driver.reports = [FAILURE, [Xid("GPU-1", 79), Xid("GPU-0", 13)]]
    seen = Gpus(driver, clock=time.clock, sleep=time.sleep)
    await seen.begin(30.0)
    async with beside(seen.listen()):
        await wait.eventually(lambda: seen.unhealthy)
    assert list(seen.unhealthy) == ["GPU-1"]


async def test_a_driver_that_cannot_wait_does_not_keep_us_busy() -> None:
    time = FakeTime()
    seen = Gpus(Driver(world.devices(8000)), clock=time.clock, sleep=time.sleep)
    await seen.begin(30.0)
    async with beside(seen.listen()):
        await wait.eventually(lambda: len(time.slept) > 3)
    assert set(time.slept) == {gpus.LISTEN_SECONDS}


async def test_a_process_whose_driver_hangs_for_minutes_asks_to_be_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve_api() as (_, api):
        node = Node(world.CONFIG, api, Simulated([]))
        assert node.dead() == ""
        monkeypatch.setattr(node.gpus, "silent_for", lambda: part.STUCK_SECONDS + 1)
        assert node.dead() == "the driver has not answered for 301 s"
