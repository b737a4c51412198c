"""The control program is run with a time limit, and every way to fail has its own sentence."""

from pathlib import Path

import pytest

from gpushare.mps import control as module
from gpushare.mps import files
from gpushare.mps.control import Control, Trouble
from gpushare.mps.daemon import Daemon
from gpushare.obs.errors import UserError
from tests.mps.world import Node


@pytest.fixture
async def started(node: Node) -> Daemon:
    files.prepare(node.places)
    daemon = Daemon(node.control(), node.places)
    await daemon.begin()
    return daemon


async def test_the_daemon_that_was_started_answers(node: Node, started: Daemon) -> None:
    node.program.serve(4711)
    assert await node.control().percentage() == 100.0
    assert await node.control().servers() == [4711]
    await started.quit()


@pytest.mark.parametrize(
    ("behaves", "says"),
    [
        ("hang", 'the MPS daemon has not answered "get_server_list" within 1 s'),
        ("refuse", 'the MPS daemon refuses "get_server_list": the request was refused by the stand-in'),
        ("nonsense", 'the MPS daemon answers "get_server_list" with "certainly"'),
        ("crash", 'the MPS daemon refuses "get_server_list": Cannot find MPS control daemon process'),
    ],
)
async def test_hanging_refusing_nonsense_and_no_daemon_are_told_apart(
    node: Node, started: Daemon, behaves: str, says: str
) -> None:
    node.program.behave(behaves)
    with pytest.raises(Trouble) as raised:
        await node.control(limit=1.0 if behaves == "hang" else 20.0).servers()
    assert str(raised.value) == says
    node.program.behave()
    await started.end()


async def test_words_after_an_order_are_a_refusal(node: Node, started: Daemon) -> None:
    with pytest.raises(Trouble, match=r'refuses "get_default_active_thread_percentage": 100.0'):
        await node.control().order("get_default_active_thread_percentage")
    await started.end()


async def test_without_the_program_a_person_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nvidia-cuda-mps-control not found") as raised:
        await Control(tmp_path, tmp_path, path=str(tmp_path)).ask("get_server_list")
    assert raised.value.code == 3
    assert "NVIDIA_DRIVER_CAPABILITIES" in raised.value.way


async def test_a_program_that_cannot_be_run_is_trouble(tmp_path: Path) -> None:
    broken = tmp_path / module.PROGRAM
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with pytest.raises(Trouble, match="nvidia-cuda-mps-control cannot be run: Exec format error"):
        await Control(tmp_path, tmp_path, path=str(tmp_path)).ask("get_server_list")


async def test_limits_in_our_own_environment_do_not_reach_the_daemon(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "5")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere")
    environment = node.control()._environment()
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in environment
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == str(node.places.pipe)
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
