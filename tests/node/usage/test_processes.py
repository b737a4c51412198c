"""Whose processes are, read from a folder that looks like /proc."""

from pathlib import Path

import pytest

from gpushare.node.usage import sight
from gpushare.node.usage.model import Owner
from gpushare.node.usage.processes import Processes

UID = "0b3f1c52-7a1e-4c0d-9f6e-2b8a51f0d3c4"
ONE, OTHER = Owner(UID, "3f9a" * 16), Owner(UID, "b7c1" * 16)


def _process(proc: Path, pid: int | str, owner: Owner | None) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    path = f"/kubepods/burstable/pod{owner.pod_uid}/{owner.container_id}" if owner else "/init.scope"
    (folder / "cgroup").write_text(f"0::{path}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Of a node."""
    _process(tmp_path, 1, None)
    _process(tmp_path, "self", ONE)
    (tmp_path / "self" / "status").write_text("Name:\tgpushare\nNSpid:\t4711\t1\n")
    (tmp_path / "self" / "ns").mkdir()
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532713]")
    return tmp_path


def test_processes_are_of_the_containers_that_their_cgroups_name(proc: Path) -> None:
    for pid, owner in ((40, ONE), (41, ONE), (50, OTHER), (60, None)):
        _process(proc, pid, owner)
    processes = Processes(str(proc))
    assert processes.unknown == ""
    assert processes.of([40, 41, 50, 60, 70], {UID}) == {40: ONE, 41: ONE, 50: OTHER}


def test_a_cgroup_with_any_bytes_in_its_name_is_of_nobody(proc: Path) -> None:
    _process(proc, 40, ONE)
    (proc / "41").mkdir()
    (proc / "41" / "cgroup").write_bytes(b"0::/\xff\xfe\n")
    assert Processes(str(proc)).of([40, 41], {UID}) == {40: ONE}


def test_a_pid_that_was_reused_is_of_its_new_owner(proc: Path) -> None:
    processes = Processes(str(proc))
    _process(proc, 40, ONE)
    assert processes.of([40], {UID}) == {40: ONE}
    _process(proc, 40, OTHER)
    assert processes.of([40], {UID}) == {40: OTHER}
    _process(proc, 40, None)
    assert processes.of([40], {UID}) == {}


def test_what_is_no_longer_asked_for_is_forgotten(proc: Path) -> None:
    processes = Processes(str(proc))
    for pid in range(100, 200):
        _process(proc, pid, Owner(UID, f"{pid:064x}"))
        processes.of([pid], {UID})
    assert len(processes._owners) == 1


def test_a_folder_that_is_no_proc_is_named_with_the_reason(tmp_path: Path) -> None:
    processes = Processes(str(tmp_path))
    assert processes.unknown == f"{tmp_path} cannot be read: No such file or directory"
    assert processes.of([1], {UID}) == {}


def test_a_pod_that_does_not_see_the_node_knows_of_no_process(proc: Path) -> None:
    (proc / "self" / "status").write_text("NSpid:\t1\n")
    _process(proc, 1, ONE)
    processes = Processes(str(proc))
    assert processes.unknown == sight.NOT_SEEN
    assert processes.of([40], {UID}) == {}


def test_this_process_finds_out_about_itself() -> None:
    assert Processes().unknown in ("", sight.NOT_SEEN)
