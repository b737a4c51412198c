"""One supervisor on a node; reports that appear whole; and a warning where shared memory is not the node's."""

import os
from pathlib import Path

import pytest

from gpushare.core.facts.mps.status import Status
from gpushare.mps import files
from gpushare.mps.files import Places
from gpushare.obs.errors import UserError


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "pipe", tmp_path / "state", tmp_path / "proc")


def test_a_second_supervisor_is_refused_until_the_first_has_ended(places: Places) -> None:
    first = files.lock(places)
    with pytest.raises(UserError, match="another gpushare mps runs on this node") as raised:
        files.lock(places)
    assert raised.value.code == 3
    os.close(first)
    os.close(files.lock(places))


def test_the_ready_file_exists_only_while_it_is_up(places: Places) -> None:
    files.prepare(places)
    for state, ready in (("starting", False), ("up", True), ("up", True), ("down", False), ("down", False)):
        files.report(places, Status(1, state, "", 1.0, 1, 1.0))  # type: ignore[arg-type]
        assert places.ready.exists() is ready
    assert sorted(path.name for path in places.state.iterdir()) == ["log", "status.json"], "no drafts are left"


def test_clients_of_every_user_may_look_into_the_folder_of_pipes(places: Places) -> None:
    files.prepare(places)
    assert places.pipe.stat().st_mode & 0o777 == 0o755


def test_a_file_where_a_folder_belongs_is_named(places: Places) -> None:
    places.pipe.write_text("")
    with pytest.raises(UserError, match=f"the folder {places.pipe} cannot be made"):
        files.prepare(places)


def test_a_state_that_cannot_be_written_is_told(places: Places) -> None:
    with pytest.raises(UserError, match="state cannot be written"):
        files.report(places, Status(1, "up", "", 1.0, 1, 1.0))


@pytest.mark.parametrize(
    ("own", "first", "problem"),
    [
        (files.HOST_IPC, "", ""),
        ("ipc:[4026532999]", "ipc:[4026532999]", ""),
        ("ipc:[4026532999]", files.HOST_IPC, files.NOT_HOSTS_SHM),
        ("ipc:[4026532999]", "", files.NOT_HOSTS_SHM),
        ("", "", ""),
    ],
)
def test_shared_memory_that_is_not_the_nodes_is_told(places: Places, own: str, first: str, problem: str) -> None:
    for name, target in (("self", own), ("1", first)):
        if target:
            (places.proc / name / "ns").mkdir(parents=True)
            (places.proc / name / "ns" / "ipc").symlink_to(target)
    assert files.shm_problem(places) == problem
