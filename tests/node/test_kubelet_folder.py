"""One device plugin alone uses kubelet's folder; whoever comes second waits a while, says so and stops."""

import asyncio
import errno
import fcntl
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.kubelet import paths
from gpushare.node import kubelet_folder
from gpushare.obs import errors

HOLD = (
    "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); print(flush=True); input()"
)


@pytest.fixture
def folder(kubelet: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kubelet_folder, "LOOK_SECONDS", 0.01)
    return kubelet / paths.DEVICE_PLUGINS


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def refused(folder: Path, limit: float = 0.05) -> errors.UserError:
    with pytest.raises(errors.UserError) as caught:
        await kubelet_folder.lock(folder, "gpu-a", limit)
    return caught.value


async def test_the_second_is_told_which_process_was_first(folder: Path) -> None:
    first = await kubelet_folder.lock(folder, "gpu-a", 0)
    try:
        error = await refused(folder)
    finally:
        os.close(first)
    assert error.what == f"kubelet's folder {folder} is in use by another device plugin"
    assert error.why.startswith(f"by process {os.getpid()} (")
    assert error.way.endswith("kubectl get pods -A --field-selector spec.nodeName=gpu-a")
    assert error.code == errors.BAD_INPUT
    os.close(await kubelet_folder.lock(folder, "gpu-a", 0))


async def test_a_process_in_another_container_has_no_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet_folder, "LOCKS", folder / "none")
    first = await kubelet_folder.lock(folder, "gpu-a", 0)
    assert (await refused(folder)).why == "another gpushare has locked it"
    os.close(first)


async def test_a_plugin_that_is_about_to_end_is_waited_for_with_one_log_line(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await kubelet_folder.lock(folder, "gpu-a", 0)
    second = asyncio.create_task(kubelet_folder.lock(folder, "gpu-a", 30))
    await asyncio.sleep(0.05)
    assert not second.done()
    os.close(first)
    os.close(await second)
    assert caplog.messages == [f"kubelet's folder {folder} is in use by another device plugin"]


async def test_the_lock_of_a_killed_process_is_gone(folder: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD, folder, stdin=pipe, stdout=pipe)
    assert child.stdout is not None
    await child.stdout.readline()
    assert (await refused(folder)).why.startswith(f"by process {child.pid} (")
    child.send_signal(signal.SIGKILL)
    await child.communicate()
    os.close(await kubelet_folder.lock(folder, "gpu-a", 0))


async def test_kubelet_may_delete_every_file_in_the_folder_when_it_restarts(folder: Path) -> None:
    first = await kubelet_folder.lock(folder, "gpu-a", 0)
    assert not files(folder)  # nothing to delete, and nothing that could be left behind
    (folder / paths.KUBELET_SOCKET).touch()
    assert (await refused(folder)).code == errors.BAD_INPUT
    os.close(first)


async def test_a_folder_that_cannot_be_written_can_be_locked(folder: Path) -> None:
    Path.chmod(folder, 0o555)
    first = await kubelet_folder.lock(folder, "gpu-a", 0)
    assert (await refused(folder)).code == errors.BAD_INPUT
    os.close(first)


async def test_aliyuns_plugin_is_noticed_by_its_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / kubelet_folder.SOCKETS[names.GPU_MEM]))
        listening.listen()
        assert (await refused(folder)).why.startswith(f"by process {os.getpid()} (")
    # The file of its socket is still there; nobody answers.
    os.close(await kubelet_folder.lock(folder, "gpu-a", 0))


async def test_a_folder_that_is_not_there_is_waited_for(folder: Path) -> None:
    Path.rmdir(folder)
    error = await refused(folder)
    assert error.what == f"kubelet's socket is not there: {folder / paths.KUBELET_SOCKET}"
    assert error.code == errors.CLUSTER_NOT_ASKED
    locking = asyncio.create_task(kubelet_folder.lock(folder, "gpu-a", 30))
    await asyncio.sleep(0.03)
    Path.mkdir(folder)
    os.close(await locking)


async def test_a_folder_that_is_made_anew_is_locked_again(folder: Path) -> None:
    first = await kubelet_folder.lock(folder, "gpu-a", 0)
    keeping = asyncio.create_task(kubelet_folder.keep_locked(folder, "gpu-a", first))
    Path.rmdir(folder)
    await asyncio.sleep(0.03)
    Path.mkdir(folder)
    await asyncio.sleep(0.05)
    assert (await refused(folder)).code == errors.BAD_INPUT
    keeping.cancel()
    os.close(first)
    os.close(await kubelet_folder.lock(folder, "gpu-a", 0))


async def test_whoever_finds_a_new_folder_locked_says_so_and_stops(folder: Path) -> None:
    first = await kubelet_folder.lock(folder, "gpu-a", 0)
    Path.rmdir(folder)
    Path.mkdir(folder)
    second = await kubelet_folder.lock(folder, "gpu-a", 0)
    with pytest.raises(errors.UserError, match="is in use by another device plugin"):
        await asyncio.wait_for(kubelet_folder.keep_locked(folder, "gpu-a", first), 5)
    os.close(first)
    os.close(second)


async def test_a_file_system_without_locks_stops_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    os.close(await kubelet_folder.lock(folder, "gpu-a", 0))
