"""New lines of the daemon's files are told once, and no file grows for ever."""

from pathlib import Path

import pytest

from gpushare.mps import logs
from gpushare.mps.logs import Follower


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []

    class Log:
        def info(self, msg: str, **fields: object) -> None:
            lines.append(str(fields["line"]))

        def warn(self, msg: str, **fields: object) -> None:
            lines.append(msg)

    monkeypatch.setattr(logs, "logger", Log())
    return lines


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_whole_new_lines_are_told_and_none_about_our_own_questions(tmp_path: Path, told: list[str]) -> None:
    path = tmp_path / "control.log"
    write(path, "[x] before us\n")
    follower = Follower(tmp_path)
    write(path, "[x] NEW UI\n[x] Cmd:get_server_list\n[x] first\n[x] sec")
    follower.look()
    assert told == ["[x] first"]
    write(path, "ond\n")
    follower.look()
    follower.look()
    assert told == ["[x] first", "[x] second"]


def test_a_file_that_is_too_large_is_emptied(tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LARGEST", 100)
    path = tmp_path / "server.log"
    follower = Follower(tmp_path)
    write(path, "[x] a line of some length\n" * 5)
    follower.look()
    assert path.stat().st_size == 0
    write(path, "[x] after it\n")
    follower.look()
    assert told == ["[x] a line of some length"] * 5 + ["[x] after it"]


def test_of_a_flood_the_end_is_told(tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "AT_ONCE", 30)
    follower = Follower(tmp_path)
    write(tmp_path / "control.log", "[x] line\n" * 1000)
    follower.look()
    assert told[0] == "MPS says too much, some of it is left out"
    assert len(told) < 10


def test_a_new_file_in_place_of_the_old_one_is_told_from_its_beginning(tmp_path: Path, told: list[str]) -> None:
    path = tmp_path / "control.log"
    write(path, "[x] a long line of the old file\n")
    follower = Follower(tmp_path)
    path.unlink()
    follower.look()
    write(path, "[x] new\n")
    follower.look()
    assert told == ["[x] new"]
