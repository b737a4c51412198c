"""What happens to the supervisor at bad moments: whatever it is, the GPUs get their modes back and clients are not lost
without need."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare.core.facts.mps.status import Status
from gpushare.gpu import absence
from gpushare.gpu.compute_mode import DEFAULT, EXCLUSIVE_PROCESS
from gpushare.gpu.device import Device, NoDriver
from gpushare.kube import client
from gpushare.kube.auth.login import Access
from gpushare.mps import app, control, files, leftovers
from gpushare.mps import supervisor as supervisors
from gpushare.mps.supervisor import Supervisor
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from tests.mps.world import FakeGpus, Node, at_work
from tests.support.wait import eventually


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From that call on, files cannot be written."""

    def fail(path: Path, content: bytes, *, lasting: bool = False) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(files, "replace", fail)


async def is_up(node: Node) -> None:
    await eventually(lambda: node.is_ready or None, "the ready file")


async def ended(made: Supervisor, task: "asyncio.Task[None]", why: str) -> None:
    """It ends with that, as the process does then."""
    with pytest.raises(UserError, match=why):
        await task
    await made.stop(why)


async def test_a_program_that_is_taken_away_does_not_keep_daemon_and_modes(node: Node) -> None:
    made = node.supervisor()
    task = asyncio.create_task(made.run())
    await is_up(node)
    Path(node.path, control.PROGRAM).unlink()  # noqa: ASYNC240
    await ended(made, task, "not found")
    assert leftovers.find(node.places.pipe) == []
    assert node.gpus.by_uuid["GPU-0"] == DEFAULT


async def test_a_full_disk_does_not_keep_daemon_and_modes(node: Node, full_disk: Callable[[], None]) -> None:
    made = node.supervisor()
    task = asyncio.create_task(made.run())
    await is_up(node)
    full_disk()
    node.program.behave("crash")  # so that there is something to report
    await ended(made, task, "cannot be written")
    assert leftovers.find(node.places.pipe) == []
    assert node.gpus.by_uuid["GPU-0"] == DEFAULT
    assert not node.is_ready


async def test_a_full_disk_does_not_end_a_daemon_that_serves_clients(
    node: Node, full_disk: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, tries, report = node.supervisor(), [], files.report

    def counted(places: files.Places, said: Status) -> None:
        tries.append(said.state)
        report(places, said)

    async with at_work(made) as task:
        await is_up(node)
        full_disk()
        monkeypatch.setattr(files, "report", counted)
        await eventually(lambda: len(tries) > 3 or None, "more looks")
        assert not task.done()
        assert (made.state, made.restarts, set(tries)) == ("up", 0, {"up"})


def test_a_status_folder_that_cannot_be_locked_is_told_in_a_sentence(node: Node) -> None:
    files.prepare(node.places)
    (node.places.state / files.LOCK).mkdir()
    with pytest.raises(UserError, match=r"state cannot be written to .*: Is a directory"):
        files.lock(node.places)


async def test_clients_of_a_daemon_that_was_killed_with_its_supervisor_are_told_by_the_next_one(node: Node) -> None:
    files.prepare(node.places)
    files.report(node.places, Status(1, "up", "", 0.0, 4711, 0.0))
    async with at_work(node.supervisor()):
        await eventually(lambda: ("works", "") in node.heard.said or None, "a new daemon")
        assert node.heard.said == [("lost", supervisors.KILLED_BEFORE), ("works", "")]


async def test_clients_of_a_daemon_that_ended_in_order_or_still_runs_are_not_told_again(node: Node) -> None:
    async with at_work(node.supervisor()):
        await is_up(node)
    node.heard.said.clear()
    async with at_work(node.supervisor()):
        await is_up(node)
        async with at_work(node.supervisor()):  # finds the daemon, and a report that it is up
            await eventually(lambda: len(node.heard.said) > 1 or None, "the second one")
            assert set(node.heard.said) == {("works", "")}


class LateGpus(FakeGpus):
    """A driver whose calls go on after nobody waits for them any more, as the calls of threads do."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[asyncio.Task[None]] = []
        self.goes_on = asyncio.Event()

    async def set_mode(self, uuid: str, mode: int) -> None:
        self.calls.append(asyncio.create_task(self._call(uuid, mode)))
        await asyncio.shield(self.calls[-1])

    async def _call(self, uuid: str, mode: int) -> None:
        if mode == EXCLUSIVE_PROCESS:
            await self.goes_on.wait()
        await super().set_mode(uuid, mode)


async def test_a_mode_that_is_just_being_set_at_the_end_is_put_back_all_the_same(node: Node) -> None:
    gpus = node.gpus = LateGpus()
    made = node.supervisor()
    task = asyncio.create_task(made.run())
    await eventually(lambda: gpus.calls or None, "the first mode")
    task.cancel()
    asyncio.get_running_loop().call_later(0.1, gpus.goes_on.set)
    await asyncio.gather(task, return_exceptions=True)
    await made.stop()
    await asyncio.gather(*gpus.calls)
    assert gpus.by_uuid == {"GPU-0": DEFAULT, "GPU-1": DEFAULT}


class NoGpus(FakeGpus):
    async def devices(self) -> list[Device]:
        raise NoDriver("libnvidia-ml.so.1 not found", "no driver", "load it", CLUSTER_NOT_ASKED)


async def test_on_a_node_without_a_driver_it_is_ready_and_does_nothing_if_that_is_wanted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(node.path, control.PROGRAM).unlink()  # noqa: ASYNC240
    monkeypatch.setattr(absence, "ABSENT_SECONDS", 0.01)
    monkeypatch.setattr(supervisors, "STUCK_SECONDS", 0.0)
    config = app.Config("a", places=node.places, path=node.path, fail_on_init_error=False)
    async with client.connect(Access("http://127.0.0.1:1")) as api:
        made = app.Mps(config, api, NoGpus())  # type: ignore[arg-type]
        assert made.not_ready() == supervisors.STARTING
        task = asyncio.create_task(made.run())
        await eventually(lambda: made.absent or None, "no driver")
        assert (made.not_ready(), made.dead(), task.done()) == ("", "", False)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
