"""A control program that floods, forks and leaves children: nothing grows, and nothing is left behind."""

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare.mps import daemon as daemons
from gpushare.mps import leftovers
from gpushare.mps.commands import Sizes
from gpushare.mps.control import LARGEST, PROGRAM, Control, Trouble, killed
from gpushare.mps.daemon import Daemon
from tests.mps.world import Node, at_work
from tests.support.wait import eventually

Made = Callable[[str], Control]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def write(script: str) -> Control:
        program = tmp_path / PROGRAM
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return Control(tmp_path / "pipe", tmp_path / "log", path=str(tmp_path), limit=1.0)

    return write


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def runs(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def with_a_child(program: Path) -> None:
    """As the daemon it starts a process that has its output, as servers do."""
    real = program.rename(program.with_name("real"))
    program.write_text(f'#!/bin/sh\n[ "$1" = -f ] && sleep 300 &\nexec {real} "$@"\n')
    program.chmod(0o755)


async def test_of_an_answer_without_end_only_the_beginning_is_read(made: Made) -> None:
    control = made("exec yes")
    with pytest.raises(Trouble) as trouble:
        await control.ask("get_server_list")
    assert str(trouble.value) == f'the MPS daemon answers "get_server_list" with more than {LARGEST} bytes'


async def test_a_flood_that_nobody_reads_leaves_no_pipe_open(made: Made) -> None:
    before = descriptors()
    process = await made("yes & exit 0").start()
    await eventually(lambda: process.returncode is not None or None, "its end; its child goes on")
    await eventually(lambda: getattr(process.stdout, "_paused", True) or None, "more than is kept for a reader")
    await killed(process)
    await eventually(lambda: descriptors() <= before or None, "no open pipe")


async def test_a_question_whose_program_leaves_a_child_leaves_nothing_here(made: Made, tmp_path: Path) -> None:
    control = made(f"sleep 300 & echo $! > {tmp_path}/child; echo 100.0")
    before = descriptors()
    for _ in range(3):
        with pytest.raises(Trouble, match="has not answered"):
            await control.percentage()
        await eventually(lambda: not runs((tmp_path / "child").read_text().strip()) or None, "its end")
    await eventually(lambda: descriptors() <= before or None, "no open pipe")


async def test_a_daemon_that_was_killed_is_noticed_although_its_servers_hold_its_output(node: Node) -> None:
    with_a_child(Path(node.path, PROGRAM))
    supervisor = node.supervisor()
    async with at_work(supervisor):
        await eventually(lambda: node.is_ready or None, "the ready file")
        (old,) = leftovers.find(node.places.pipe)
        os.kill(old, signal.SIGKILL)
        await eventually(lambda: (supervisor.restarts == 1 and node.is_ready) or None, "a new one")
        assert ("lost", "the MPS daemon was ended by signal 9") in node.heard.said


class Told:
    """A control program whose server 7 ends while it is told its limits, if `ends`."""

    def __init__(self, *, ends: bool) -> None:
        self.running = [7, 8]
        self.orders: list[str] = []
        self._ends = ends

    async def servers(self) -> list[int]:
        return list(self.running)

    async def order(self, command: str) -> None:
        if " 7 " in command:
            if self._ends:
                self.running = [8]
            raise Trouble("Server 7 not found")
        self.orders.append(command)


async def test_a_server_that_ends_while_gpus_are_divided_is_no_trouble(node: Node) -> None:
    told = Told(ends=True)
    await Daemon(told, node.places).divide(Sizes(4, ((0, 16000),)), limits=True)  # type: ignore[arg-type]
    assert told.orders == [
        "set_default_device_pinned_mem_limit 0 4000M",
        "set_default_active_thread_percentage 25",
        "set_device_pinned_mem_limit 8 0 4000M",
        "set_active_thread_percentage 8 25",
    ]


async def test_a_server_that_runs_and_is_not_divided_is_trouble(node: Node) -> None:
    with pytest.raises(Trouble, match="Server 7 not found"):
        await Daemon(Told(ends=False), node.places).divide(Sizes(4, ()), limits=True)  # type: ignore[arg-type]


async def test_questions_that_others_ask_all_the_time_do_not_keep_a_new_daemon_away(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = itertools.count(1)
    ended: list[int] = []
    monkeypatch.setattr(leftovers, "find", lambda pipe, proc: [next(pids)])  # each is there for a moment
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(pid))
    assert await leftovers.end(node.places.pipe, node.places.proc)
    assert ended == [1]


async def test_of_a_flood_of_output_some_lines_are_told_and_the_last_is_the_reason(
    made: Made, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    class Log:
        def info(self, msg: str, **fields: object) -> None:
            told.append(str(fields["line"]))

        def warn(self, msg: str, **fields: object) -> None:
            told.append(msg)

    monkeypatch.setattr(daemons, "logger", Log())
    control = made('[ "$1" = -f ] && { seq 100000; echo out of memory; exit 3; }; exit 1')
    with pytest.raises(Trouble, match="has exited with code 3: out of memory"):
        await Daemon(control, node.places).begin()
    assert told == [*map(str, range(1, daemons.MOST_LINES + 1)), daemons.TOO_MUCH]
