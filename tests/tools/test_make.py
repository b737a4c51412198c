"""`make` says one line a step, makes the environment when it has to, and names what failed."""

import fcntl
import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import make

SUMMARY = """\
..F..E
=========================== short test summary info ============================
FAILED tests/core/test_fit.py::test_two_binds_never_get_the_same_memory - assert 1 == 2
ERROR tests/kube/auth/test_login.py::test_a_token_is_read_again[no file] - OSError: gone - really
1 failed, 1202 passed, 1 warning, 1 error in 38.20s
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


class Builder:
    """Stands in for pip: leaves a Python that runs, and counts how often it was needed."""

    def __init__(self) -> None:
        self.built = 0

    def __call__(self, root: Path, step: make.Step) -> None:
        self.built += 1
        python = Path(make.program(root, "python"))
        python.parent.mkdir(parents=True, exist_ok=True)
        python.unlink(missing_ok=True)
        python.symlink_to(sys.executable)


def ensure(root: Path, build: Callable[[Path, make.Step], None]) -> None:
    with make.environment(root, build):
        pass


def lose_the_stamp(root: Path) -> None:
    make.stamp(root).unlink()


def lose_the_python(root: Path) -> None:
    Path(make.program(root, "python")).unlink()


def break_the_python(root: Path) -> None:
    lose_the_python(root)
    Path(make.program(root, "python")).symlink_to("/bin/false")


def change_the_lock(root: Path) -> None:
    (root / "requirements.lock").write_text("aiohttp==9\n")


def test_an_environment_is_made_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = Builder()
    ensure(root, build)
    assert re.fullmatch(r"  python environment {5}\d\.\ds\n", capsys.readouterr().err)
    ensure(root, build)
    assert build.built == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("harm", [lose_the_stamp, lose_the_python, break_the_python, change_the_lock])
def test_a_half_made_broken_or_old_environment_is_made_again(root: Path, harm: Callable[[Path], None]) -> None:
    build = Builder()
    ensure(root, build)
    harm(root)
    ensure(root, build)
    assert build.built == 2


def test_an_environment_that_could_not_be_made_is_not_taken_for_one(root: Path) -> None:
    def fail(root: Path, step: make.Step) -> None:
        Builder()(root, step)
        raise make.StepFailed("no network", "again")

    with pytest.raises(make.StepFailed):
        ensure(root, fail)
    build = Builder()
    ensure(root, build)
    assert build.built == 1


def test_an_environment_in_use_is_not_made_again_under_its_user(root: Path) -> None:
    with make.environment(root, Builder()), (root / ".build" / "lock").open("a") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_a_step_leaves_its_output_in_the_log_and_one_plain_line(root: Path) -> None:
    out = io.StringIO()
    with make.Step(root, "lint and types", "lint", out) as step:
        assert step.run("echo", "all is well") == (0, "all is well\n")
        assert step.run("sh", "-c", "echo oh; exit 3") == (3, "oh\n")
    assert (
        root / ".build/log/lint.log"
    ).read_text() == "$ echo 'all is well'\nall is well\n$ sh -c 'echo oh; exit 3'\noh\n"
    assert re.fullmatch(r"  lint and types {9}\d\.\ds\n", out.getvalue())


def test_commands_run_side_by_side_and_are_logged_in_order(root: Path) -> None:
    with make.Step(root, "lint and types", "lint", io.StringIO()) as step:
        wait, go = f"until [ -e {root}/go ]; do sleep 0.01; done; echo first", f"touch {root}/go; echo second; exit 3"
        results = step.run_side_by_side(("sh", "-c", wait), ("sh", "-c", go))
    assert results == [(0, "first\n"), (3, "second\n")]
    logged = (root / ".build/log/lint.log").read_text().splitlines()
    assert (logged[1], logged[3]) == ("first", "second")


def test_a_failed_step_says_what_and_the_way_out(root: Path) -> None:
    out = io.StringIO()
    with pytest.raises(make.StepFailed), make.Step(root, "tests", "tests", out):
        raise make.failed_tests([SUMMARY], SUMMARY.splitlines()[-1])
    first, second = out.getvalue().splitlines()
    assert re.sub(r" \d\.\d", "38.2", first) == (
        "  tests         FAILED  38.2s   2 of 1204: "
        "tests/core/test_fit.py::test_two_binds_never_get_the_same_memory, ..."
    )
    assert second == '  try: make test ARGS="-k two_binds"          full log: .build/log/tests.log'


def test_a_terminal_sees_the_seconds_of_a_running_step(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with make.Step(root, "tests", "tests", out) as step:
        step.run("sleep", "0.25")
    assert out.getvalue().count("\r  tests ") >= 2
    assert out.getvalue().endswith("s\n")


def test_a_crash_of_pytest_is_told_in_its_own_words() -> None:
    assert make.failed_tests(["ERROR: usage\nno such option -y\n"], "").note == "no such option -y"


def pretend_checks(root: Path) -> None:
    """Nobody has anything to say."""
    for check in make.CHECKS.values():
        Path(make.program(root, check.command[0])).write_text("#!/bin/sh\nexit 0\n")
        Path(make.program(root, check.command[0])).chmod(0o755)


def test_lint_runs_again_only_when_a_file_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ensure(root, Builder())
    pretend_checks(root)
    (root / "src").mkdir()
    source = root / "src" / "a.py"
    source.write_text("x = 1\n")
    capsys.readouterr()
    make.lint(root)
    make.lint(root)
    assert capsys.readouterr().err.count("lint and types") == 1
    source.write_text("x = 2\n")
    make.lint(root)
    assert capsys.readouterr().err.count("lint and types") == 1


def test_every_failed_check_is_named_with_its_first_complaint(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ensure(root, Builder())
    for name, words in {
        "ruff": "[ $1 = format ] && exit 2; echo src/a.py:1:1: F401 unused; echo src/b.py:2:1: F401 unused; exit 1",
        "mypy": "echo src/a.py:3: error: no; echo Found 1 error; exit 1",
        "lint-imports": "exit 0",
    }.items():
        Path(make.program(root, name)).write_text(f"#!/bin/sh\n{words}\n")
        Path(make.program(root, name)).chmod(0o755)
    with pytest.raises(make.StepFailed) as failed:
        make.lint(root)
    assert failed.value.note == (
        "ruff check: src/a.py:1:1: F401 unused, ...; ruff format: exit code 2; mypy: src/a.py:3: error: no"
    )
    assert not (root / ".build" / "lint.passed").exists()


def test_beside_lint_the_tests_are_compiled_the_first_time_and_what_comes_of_it_is_no_fault_of_lint(root: Path) -> None:
    ensure(root, Builder())
    pretend_checks(root)
    (collecting,) = make.compiling(root)
    assert collecting[1:3] == ("-m", "pytest")
    make.lint(root, ("sh", "-c", f"touch {root}/done; exit 2"))
    assert (root / "done").exists()
    compiled = root / "tests" / "core" / "__pycache__" / "test_fit.pyc"
    compiled.parent.mkdir(parents=True)
    compiled.touch()
    assert list(make.compiling(root)) == []


def pretend_programs(root: Path, script: str) -> None:
    """Answers as tests.e2e.harness.binaries would: `$3` says what to do, `$4` for which target or program."""
    python = Path(make.program(root, "python"))
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def test_every_program_that_has_to_be_made_is_a_step(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretend_programs(root, '[ $3 = make ] || printf "etcd\nkubernetes sources\n"')
    assert make.programs(root, "e2e") == 0
    assert [line[:20].strip() for line in capsys.readouterr().err.splitlines()] == ["etcd", "kubernetes sources"]
    assert (root / ".build/log/kubernetes-sources.log").exists()


def test_each_target_asks_for_what_it_needs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretend_programs(root, '[ $3 = make ] || echo "for $4"')
    for target in ("cluster", "e2e", "e2e-versions"):
        make.programs(root, target)
    said = [line[:20].strip() for line in capsys.readouterr().err.splitlines()]
    assert said == ["for cluster", "for e2e", "for e2e-versions"]


def test_older_schedulers_have_a_target_of_their_own(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretend_programs(root, 'case $2 in pytest) shift 5; echo "told: $*"; echo "1 passed in 2.00s";; esac')
    make.e2e(root, "e2e-versions")
    assert capsys.readouterr().out == "1 passed in 2.00s\n"
    log = (root / ".build/log/e2e-versions.log").read_text()
    assert "\ntold: tests/e2e/test_versions.py --schedulers=others\n" in log


# Stands in for pytest: two lanes that say what they measured, then what runs alone.
TWO_RUNS = """
echo "===== measured ====="
case "$*" in
*"-m not alone -n 2"*) echo "  placed: 300"; echo "9 passed, 2 deselected in 61.50s (0:01:01)";;
*"-m alone --rounds=1") echo "  rate: 0.97"; echo "2 passed, 9 deselected in 30.25s";;
*) exit 9;;
esac
"""


def test_cluster_tests_run_in_lanes_then_alone_and_are_told_as_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend_programs(root, TWO_RUNS)
    make.e2e(root, "e2e")
    assert capsys.readouterr().out == "  placed: 300\n  rate: 0.97\n11 passed in 91.75s (0:01:31)\n"
    assert (root / ".build/log/e2e/figures.txt").read_text() == "  placed: 300\n  rate: 0.97\n"


FAILING = (
    'printf "%s\n%s\n%s\n" "short test summary info" "FAILED tests/e2e/a.py::test_it_is_quick - slow" "CLOSING"; exit 1'
)


@pytest.mark.parametrize("lanes_fail", [True, False])
def test_what_failed_in_one_of_the_runs_fails_all_and_the_other_still_ran(
    root: Path, capsys: pytest.CaptureFixture[str], lanes_fail: bool
) -> None:
    bad, good = FAILING.replace("CLOSING", "1 failed, 3 passed in 2.00s"), 'echo "7 passed in 3.00s"'
    lanes, alone = (bad, good) if lanes_fail else (good, bad)
    pretend_programs(root, f'case "$*" in *"not alone"*) {lanes};; *) {alone};; esac')
    with pytest.raises(make.StepFailed) as failed:
        make.e2e(root, "e2e")
    assert failed.value.note == "1 of 11: tests/e2e/a.py::test_it_is_quick"
    assert failed.value.way == 'make e2e ARGS="-k it_is_quick"'
    assert capsys.readouterr().out == ""
    log = (root / ".build/log/e2e.log").read_text()
    assert log.count("FAILED tests/e2e/a.py") == log.count("7 passed") == 1


def test_a_run_that_dies_is_told_in_its_own_words_although_the_other_passed(root: Path) -> None:
    pretend_programs(
        root, 'case "$*" in *"not alone"*) echo "killed by a signal"; exit 3;; *) echo "7 passed in 3.00s";; esac'
    )
    with pytest.raises(make.StepFailed) as failed:
        make.e2e(root, "e2e")
    assert failed.value.note == "killed by a signal"


def test_a_missing_tool_is_the_programs_own_error(root: Path) -> None:
    pretend_programs(root, "exit 2")
    assert make.programs(root, "e2e") == 2


def test_a_program_that_cannot_be_made_is_told_in_its_own_words(root: Path) -> None:
    pretend_programs(root, '[ $3 = make ] || { echo etcd; exit 0; }; echo "error: apt-get download failed" >&2; exit 2')
    with pytest.raises(make.StepFailed) as failed:
        make.programs(root, "e2e")
    assert failed.value.note == "error: apt-get download failed"


def test_the_hint_for_a_failed_cluster_test_names_its_target() -> None:
    failed = make.failed_tests([SUMMARY], SUMMARY.splitlines()[-1], "e2e")
    assert failed.way == 'make e2e ARGS="-k two_binds"'


def test_help_lists_every_target() -> None:
    said = subprocess.run(["make", "-C", make.ROOT, "--no-print-directory"], capture_output=True, text=True, check=True)
    targets = [
        "help",
        "demo",
        "test",
        "soak",
        "e2e",
        "e2e-versions",
        "cluster",
        "lint",
        "bench",
        "bench-packing",
        "image",
    ]
    assert [line.split()[1] for line in said.stdout.splitlines()] == targets


# Programs that tests need: a C compiler, a browser


def test_a_compiler_that_is_there_is_not_looked_for_further(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make.ensure(root, make.COMPILER, "test")
    assert capsys.readouterr().err == ""


def test_a_missing_compiler_that_may_not_be_installed_is_one_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(make.StepFailed):
        make.ensure(root, make.COMPILER, "test")
    said = capsys.readouterr().err
    assert "gcc not found, and this user cannot install it" in said
    assert "try: apt-get install gcc libc6-dev" in said


def test_a_missing_compiler_is_installed_where_it_may(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    apt.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "gcc" else str(apt))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    make.ensure(root, make.COMPILER, "test")
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "install -q -y --no-install-recommends gcc libc6-dev"
