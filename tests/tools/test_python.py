"""tools/python finds an interpreter that can make the environment, or says in one sentence why there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import make

FIT = f'exec "{sys.executable}" "$@"'
OLD = 'echo "is Python 3.9" >&2; exit 1'
WITHOUT_ENSUREPIP = 'echo "has no ensurepip module" >&2; exit 1'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with nothing but what the script itself needs."""
    for name in ("sh", "head"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    return tmp_path


def interpreter(path: Path, name: str, does: str) -> None:
    (path / name).write_text(f"#!{path}/sh\n{does}\n")
    (path / name).chmod(0o755)


def ask(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [make.ROOT / "tools" / "python", "-c", "print('it runs')"],
        env={"PATH": os.fspath(path)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_first_fit_python_is_used(path: Path) -> None:
    interpreter(path, "python3", OLD)
    interpreter(path, "python3.12", FIT)
    assert ask(path).stdout == "it runs\n"


def test_a_python_that_is_named_is_used(path: Path) -> None:
    interpreter(path, "python3", OLD)
    interpreter(path, "my python", FIT)
    assert ask(path, PYTHON=f"{path}/my python").stdout == "it runs\n"


def test_a_python_that_is_named_is_the_only_one_tried(path: Path) -> None:
    interpreter(path, "python3", FIT)
    said = ask(path, PYTHON="python9")
    assert said.returncode == 2
    assert "why: there is no python9\n" in said.stderr


@pytest.mark.parametrize(
    ("does", "why", "way"),
    [
        (OLD, "python3 is Python 3.9", "install Python 3.11 or later"),
        (WITHOUT_ENSUREPIP, "python3 has no ensurepip module", "apt install python3-venv"),
    ],
)
def test_an_unfit_python_is_refused_with_the_way_out(path: Path, does: str, why: str, way: str) -> None:
    interpreter(path, "python3", does)
    said = ask(path)
    assert said.returncode == 2
    assert said.stdout == ""
    first, second, third = said.stderr.splitlines()
    assert first == "error: no Python 3.11 or later that can make a virtual environment"
    assert second == f"  why: {why}"
    assert way in third


def test_no_python_at_all_is_said_as_such(path: Path) -> None:
    said = ask(path)
    assert said.returncode == 2
    assert "why: neither python3 nor python3.11 to python3.14 is on PATH\n" in said.stderr
