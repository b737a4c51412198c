"""The daemon is started in order, asked all the time, and started again; everybody learns what is wrong."""

import asyncio
import os
import signal

import pytest

from gpushare.core.facts.mps import status
from gpushare.gpu.compute_mode import DEFAULT, EXCLUSIVE_PROCESS
from gpushare.mps import daemon as daemons
from gpushare.mps import files, leftovers, supervisor
from gpushare.mps.daemon import Daemon
from gpushare.obs.errors import UserError, not_asked
from tests.mps.world import Node, at_work
from tests.support.wait import eventually

HANGS = 'the MPS daemon has not answered "get_server_list" within 2 s'


async def is_up(node: Node) -> None:
    await eventually(lambda: node.is_ready or None, "the ready file")


async def says(node: Node, why: str) -> None:
    await eventually(lambda: ((said := node.status()) is not None and said.why == why) or None, f"status: {why}")


async def test_it_serves_with_every_gpu_in_exclusive_mode_and_puts_the_modes_back(node: Node) -> None:
    node.gpus.by_uuid["GPU-1"] = EXCLUSIVE_PROCESS  # an admin's
    async with at_work(node.supervisor()):
        await is_up(node)
        assert node.gpus.by_uuid == {"GPU-0": EXCLUSIVE_PROCESS, "GPU-1": EXCLUSIVE_PROCESS}
        said = node.status()
        assert said is not None
        assert (said.version, said.state, said.why, said.replicas) == (1, "up", "", 1)
        assert leftovers.find(node.places.pipe) == [said.pid]
    assert node.gpus.by_uuid == {"GPU-0": DEFAULT, "GPU-1": EXCLUSIVE_PROCESS}
    assert node.program.told == [f"quit -t {daemons.QUIT_SECONDS}"], "without replicas no limits are set"
    assert leftovers.find(node.places.pipe) == []
    assert not node.is_ready
    await says(node, supervisor.STOPPING)


async def test_the_report_stays_fresh_while_it_works(node: Node) -> None:
    async with at_work(node.supervisor()):
        await is_up(node)
        first = node.status()
        assert first is not None
        await eventually(lambda: ((now := node.status()) is not None and now.heartbeat > first.heartbeat) or None)
        again = node.status()
        assert again is not None
        assert again.since == first.since


async def test_a_daemon_that_is_killed_is_started_again_and_its_clients_are_told(node: Node) -> None:
    made = node.supervisor()
    async with at_work(made):
        await is_up(node)
        (old,) = leftovers.find(node.places.pipe)
        os.kill(old, signal.SIGKILL)
        await eventually(lambda: (made.restarts == 1 and node.is_ready) or None, "a new one")
        (new,) = leftovers.find(node.places.pipe)
        assert new != old
        assert node.heard.said[:3] == [("works", ""), ("lost", "the MPS daemon was ended by signal 9"), ("works", "")]


@pytest.mark.parametrize(
    ("behaves", "why"),
    [
        ("hang", HANGS),
        ("refuse", 'the MPS daemon refuses "get_server_list": the request was refused by the stand-in'),
        ("nonsense", 'the MPS daemon answers "get_server_list" with "certainly"'),
    ],
)
async def test_one_that_does_not_answer_well_is_ended_and_the_reason_reported(
    node: Node, behaves: str, why: str
) -> None:
    made = node.supervisor(limit=2.0)
    async with at_work(made):
        await is_up(node)
        (old,) = leftovers.find(node.places.pipe)
        node.program.behave(behaves)
        await eventually(lambda: ("lost", why) in node.heard.said or None, why)
        assert not node.is_ready
        await eventually(lambda: old not in leftovers.find(node.places.pipe) or None, "its end")
        said = node.status()
        assert said is not None
        assert said.state == "down"
        node.program.behave()
        await is_up(node)
        assert status.problem(status.write(node.status() or said), made._now()) == ""


async def test_one_that_exits_says_its_last_words(node: Node) -> None:
    async with at_work(node.supervisor()):
        await is_up(node)
        node.program.behave("crash")
        expected = ("lost", "the MPS daemon has exited with code 3: mps daemon: assertion failed")
        await eventually(lambda: expected in node.heard.said or None)
        node.program.behave()


async def test_one_that_cannot_be_started_is_tried_again_and_clients_are_not_told(node: Node) -> None:
    node.places.pipe.mkdir(parents=True)
    node.program.behave("no-start")
    async with at_work(node.supervisor()):
        why = "the MPS daemon has exited with code 1: Failed to start: no CUDA-capable device is detected"
        await eventually(lambda: node.heard.said.count(("fails", why)) >= 2 or None)
        assert not node.is_ready
        node.program.behave()
        await is_up(node)


async def test_one_that_starts_and_never_answers_is_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "START_SECONDS", 0.5)
    node.places.pipe.mkdir(parents=True)
    node.program.behave("mute")
    async with at_work(node.supervisor(limit=0.2)):
        why = "the MPS daemon has not answered within 0.5 s after its start"
        await eventually(lambda: ("fails", why) in node.heard.said or None)
        node.program.behave()
        await is_up(node)


async def test_a_daemon_that_runs_and_answers_is_kept_with_its_clients(node: Node) -> None:
    files.prepare(node.places)
    former = Daemon(node.control(), node.places)
    await former.begin()
    pid = former.pid
    async with at_work(node.supervisor()):
        await is_up(node)
        said = node.status()
        assert said is not None
        assert said.pid == pid
        assert "set_default_device_pinned_mem_limit 0 16276M" in node.program.told, "what it was told is unknown"
    assert leftovers.find(node.places.pipe) == []
    await former.end()


async def test_one_that_ran_before_and_dies_is_noticed_by_its_silence(node: Node) -> None:
    files.prepare(node.places)
    former = Daemon(node.control(), node.places)
    await former.begin()
    async with at_work(node.supervisor()):
        await is_up(node)
        os.kill(former.pid, signal.SIGKILL)
        why = 'the MPS daemon refuses "get_server_list": Cannot find MPS control daemon process'
        await eventually(lambda: ("lost", why) in node.heard.said or None)
        await is_up(node)
    await former.end()


async def test_one_that_runs_and_does_not_answer_is_ended_first(node: Node) -> None:
    files.prepare(node.places)
    former = Daemon(node.control(), node.places)
    await former.begin()
    pid = former.pid
    node.program.behave("hang")
    async with at_work(node.supervisor(limit=2.0)):
        await eventually(lambda: pid not in leftovers.find(node.places.pipe) or None, "its end")
        node.program.behave()
        await is_up(node)
    await former.end()


async def test_equal_shares_follow_what_the_node_sells(node: Node) -> None:
    made = node.supervisor()
    node.replicas = 4
    async with at_work(made):
        await is_up(node)
        said = node.status()
        assert said is not None
        assert said.replicas == 4
        assert node.program.told == [
            "set_default_device_pinned_mem_limit 0 4069M",
            "set_default_device_pinned_mem_limit 1 10134M",
            "set_default_active_thread_percentage 25",
        ]
        node.program.serve(4711)
        node.replicas = 2
        made.look()
        await eventually(lambda: "set_active_thread_percentage 4711 50" in node.program.told or None)
        node.replicas = 1
        made.look()
        await eventually(lambda: ((now := node.status()) is not None and now.replicas == 1) or None)
        assert "set_default_device_pinned_mem_limit 1 40536M" in node.program.told
        assert node.program.told[-1] == "set_active_thread_percentage 4711 100"


async def test_a_percentage_that_somebody_changed_is_set_again(node: Node) -> None:
    node.replicas = 4
    async with at_work(node.supervisor()):
        await is_up(node)
        await node.control().order("set_default_active_thread_percentage 100")
        await eventually(lambda: node.program.told.count("set_default_active_thread_percentage 25") >= 2 or None)


async def test_a_mode_that_the_driver_forgot_is_set_again(node: Node) -> None:
    async with at_work(node.supervisor()):
        await is_up(node)
        node.gpus.by_uuid["GPU-0"] = DEFAULT
        await eventually(lambda: node.gpus.by_uuid["GPU-0"] == EXCLUSIVE_PROCESS or None)


async def test_a_driver_that_is_silent_for_a_while_does_not_end_a_daemon_that_works(node: Node) -> None:
    made = node.supervisor()
    async with at_work(made):
        await is_up(node)
        node.gpus.failure = not_asked("the NVIDIA driver does not answer", "it hangs", "nvidia-smi")
        before = node.status()
        assert before is not None
        late = before.heartbeat + 0.3
        await eventually(lambda: ((now := node.status()) is not None and now.heartbeat > late) or None)
        assert made.restarts == 0
        node.gpus.failure = None


async def test_a_driver_that_is_not_there_yet_is_waited_for(node: Node) -> None:
    node.gpus.failure = not_asked("the NVIDIA driver is not loaded", "NVML says so", "nvidia-smi")
    async with at_work(node.supervisor()):
        await says(node, "the NVIDIA driver is not loaded: NVML says so")
        node.gpus.failure = None
        await is_up(node)


async def test_without_rights_or_program_the_process_ends_with_the_reason_and_nothing_changed(node: Node) -> None:
    node.gpus.denied = True
    with pytest.raises(UserError, match="may not set the compute mode"):
        await node.supervisor().run()
    assert node.gpus.set == []
    assert leftovers.find(node.places.pipe) == []


async def test_a_daemon_that_does_not_quit_is_ended_all_the_same(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "QUIT_SECONDS", -1)  # and 2 seconds more
    made = node.supervisor()
    task = asyncio.create_task(made.run())
    await is_up(node)
    node.program.behave("hang")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await made.stop()
    assert leftovers.find(node.places.pipe) == []
    assert node.gpus.by_uuid["GPU-0"] == DEFAULT
    assert node.heard.said[-1] == ("lost", supervisor.STOPPING)
