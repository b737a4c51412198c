"""The steps behind `make`: the Python environment, lint and types, tests, tests on a real cluster, benchmarks.

Runs before anything is installed, so it uses the standard library only; the Makefile calls it through tools/python.
A step says in one line how long it took and leaves the details in .build/log; a step with nothing to do says nothing.
Progress goes to stderr: stdout has only the answer, which is pytest's closing line or what the benchmark prints.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, NoReturn, Self

from tools import pytest_output

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "bench", "tools")
NOT_INHERITED = (
    *("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),  # they would make .venv look into another environment
    "PYTHONDONTWRITEBYTECODE",  # every process of the tests would compile every file again
)


class Check(NamedTuple):
    """One program of the lint step, where its output says what is wrong, and what usually helps."""

    command: tuple[str, ...]
    complaint: str
    way: str
    takes_folders: bool = True


PLACE = r"^\S+:\d+:.*"
CHECKS = {
    "ruff check": Check(("ruff", "check", "--output-format=concise"), PLACE, ".venv/bin/ruff check --fix"),
    "ruff format": Check(("ruff", "format", "--check", "--output-format=concise"), PLACE, ".venv/bin/ruff format"),
    "mypy": Check(("mypy", "--strict"), r"^\S+:\d+: error: .*", "mend it, then make lint"),
    "lint-imports": Check(
        ("lint-imports", "--no-logo"), r"^.* BROKEN\b", "the layers are in pyproject.toml", takes_folders=False
    ),
}


class StepFailed(Exception):
    """What is wrong, and the way out. Raised inside a step, which prints both."""

    def __init__(self, note: str, way: str) -> None:
        super().__init__(note)
        self.note, self.way = note, way


class Result(NamedTuple):
    code: int
    text: str


class Step:
    """One line of progress, one log file, any number of commands."""

    def __init__(self, root: Path, name: str, log: str, out: IO[str] | None = None) -> None:
        self.root, self.name = root, name
        self.path = root / ".build" / "log" / f"{log}.log"
        self.out = out or sys.stderr
        self.live = self.out.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Self:
        self.started = time.monotonic()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)  # a second make gets a file of its own, so that neither reads the other's
        self.log = self.path.open("a+", encoding="utf-8", errors="replace")
        return self

    def run(self, *command: str) -> Result:
        """Run to the end with all output in the log, and return this command's part of it."""
        self.log.write(f"$ {shlex.join(command)}\n")
        self.log.flush()
        start = self.log.seek(0, os.SEEK_END)
        code = self._finish([self._start(command, self.log)])[0]
        self.log.seek(start)
        return Result(code, self.log.read())

    def run_side_by_side(self, *commands: tuple[str, ...]) -> list[Result]:
        """Run all at the same time. Their output is in the log one after the other, in the order of the commands."""
        with contextlib.ExitStack() as stack:
            outputs = [stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in commands]
            codes = self._finish([self._start(command, out) for command, out in zip(commands, outputs, strict=True)])
            results = []
            for command, code, output in zip(commands, codes, outputs, strict=True):
                output.seek(0)
                results.append(Result(code, output.read()))
                self.log.write(f"$ {shlex.join(command)}\n{results[-1].text}")
        return results

    def _start(self, command: tuple[str, ...], output: IO[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, cwd=self.root, env=environ(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )

    def _finish(self, children: list[subprocess.Popen[bytes]]) -> list[int]:
        """The exit codes; whoever interrupts this ends the children too."""
        try:
            return [self._wait(child) for child in children]
        except BaseException:
            for child in children:
                child.terminate()
            for child in children:
                child.wait()
            raise

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        while True:
            try:
                return child.wait(timeout=0.1 if self.live else None)
            except subprocess.TimeoutExpired:
                self.out.write(f"\r{self._line()}")
                self.out.flush()

    def _line(self, mark: str = "") -> str:
        left = f"  {self.name:<13} {mark}" if mark else f"  {self.name}"
        return f"{left:<22}{time.monotonic() - self.started:>6.1f}s"

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.log.close()
        if self.live:
            self.out.write("\r\033[K")
        if error is None:
            self.out.write(f"{self._line()}\n")
        elif isinstance(error, StepFailed):
            log = self.path.relative_to(self.root)
            self.out.write(f"{self._line('FAILED')}   {error.note}\n  try: {error.way:<37}  full log: {log}\n")
        self.out.flush()


def environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}


# --- the Python environment


def build_environment(root: Path, step: Step) -> None:
    pip = (program(root, "python"), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off")
    for command in (
        (sys.executable, "-m", "venv", "--clear", str(root / ".venv")),
        (*pip, "--require-hashes", "-r", "requirements.lock"),
        (*pip, "--no-deps", "--no-build-isolation", "-e", "."),
    ):
        code, text = step.run(*command)
        if code:
            note = last(r"^ERROR: .*", text) or last(r"^.*\S.*$", text) or f"exit code {code}"
            raise StepFailed(note, "again with a network, or PIP_INDEX_URL=URL make test")


@contextlib.contextmanager
def environment(root: Path, build: Callable[[Path, Step], None] = build_environment) -> Iterator[IO[str]]:
    """Make .venv if it is missing, broken, half-made or out of date, and keep it from being made again meanwhile."""
    (root / ".build").mkdir(exist_ok=True)
    with (root / ".build" / "lock").open("a") as lock:
        take(lock, fcntl.LOCK_SH)
        if not is_made(root):
            take(lock, fcntl.LOCK_EX)
            if not is_made(root):  # another make may have made it while this one waited
                with Step(root, "python environment", "environment") as step:
                    stamp(root).unlink(missing_ok=True)
                    build(root, step)
                    stamp(root).write_text(fingerprint(root))
            take(lock, fcntl.LOCK_SH)
        yield lock


def take(lock: IO[str], kind: int) -> None:
    """Wait for the lock, and say so when that takes longer than a second."""
    started, announced = time.monotonic(), False
    while True:
        try:
            return fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if not announced and time.monotonic() - started > 1:
                print("  waiting for another make in this folder", file=sys.stderr, flush=True)
                announced = True
            time.sleep(0.05)


def is_made(root: Path) -> bool:
    try:
        if stamp(root).read_text() != fingerprint(root):
            return False
        return subprocess.run([program(root, "python"), "-c", ""], env=environ(), check=False).returncode == 0
    except OSError:
        return False


def fingerprint(root: Path) -> str:
    """Changes when .venv no longer is what it should be: other packages, other interpreter, folder moved."""
    files = (root / name for name in ("requirements.lock", "pyproject.toml"))
    return digest(files, sys.version, sys.base_prefix, str(root))


def stamp(root: Path) -> Path:
    return root / ".venv" / "made-from"


def program(root: Path, name: str) -> str:
    return str(root / ".venv" / "bin" / name)


# --- lint and types


def lint(root: Path, *beside: tuple[str, ...]) -> None:
    """All checks at once, and commands beside them, whatever comes of those. What passed is not checked again."""
    passed, inputs = root / ".build" / "lint.passed", lint_inputs(root)
    if passed.exists() and passed.read_text() == inputs:
        return
    folders = [name for name in FOLDERS if any((root / name).rglob("*.py"))]
    with Step(root, "lint and types", "lint") as step:
        commands = [
            (program(root, check.command[0]), *check.command[1:], *(folders if check.takes_folders else ()))
            for check in CHECKS.values()
        ]
        notes, ways = [], []
        results = step.run_side_by_side(*commands, *beside)
        for (name, check), (code, text) in zip(CHECKS.items(), results, strict=False):
            if code:
                complaints = re.findall(check.complaint, text, re.MULTILINE)
                first = complaints[0] if complaints else f"exit code {code}"
                notes.append(f"{name}: {first}{', ...' if complaints[1:] else ''}")
                ways.append(check.way)
        if notes:
            raise StepFailed("; ".join(notes), ways[0])
    passed.write_text(inputs)


def lint_inputs(root: Path) -> str:
    return digest(python_files(root), stamp(root).read_text())


def python_files(root: Path) -> Iterator[Path]:
    for name in FOLDERS:
        yield from sorted((root / name).rglob("*.py"))


# --- tests


class Tool(NamedTuple):
    """A program that tests need, and the Debian packages that bring it."""

    called: str
    program: str
    packages: tuple[str, ...]


COMPILER = Tool("C compiler", "gcc", ("gcc", "libc6-dev"))  # tests build a small stand-in for NVIDIA's library with it
BROWSER = Tool("browser", "chromium", ("chromium", "fonts-noto-cjk"))  # the dashboard is looked at in it


def ensure(root: Path, tool: Tool, target: str) -> None:
    """Installed where it is missing and we may."""
    if shutil.which(tool.program):
        return
    with Step(root, tool.called, tool.called.split()[-1]) as step:
        way = f"apt-get install {' '.join(tool.packages)}, or whatever brings {tool.program}; then make {target}"
        if not shutil.which("apt-get") or os.geteuid() != 0:
            raise StepFailed(f"{tool.program} not found, and this user cannot install it", way)
        step.run("apt-get", "update", "-q")
        code, text = step.run("apt-get", "install", "-q", "-y", "--no-install-recommends", *tool.packages)
        if code:
            raise StepFailed(last(r"^E: .*", text) or f"apt-get could not install {tool.program}", way)


def compiling(root: Path) -> Iterator[tuple[str, ...]]:
    """The first time: each process of the tests would compile all of them, at the same time as the others."""
    if not any((root / "tests").rglob("*.pyc")):
        yield program(root, "python"), "-m", "pytest", "-q", "--color=no", "--collect-only"


def tests(root: Path) -> None:
    with Step(root, "tests", "tests") as step:
        # More processes than cores, because a third of the time tests wait; a process that is done helps the others.
        cores = os.cpu_count() or 1
        processes = ("-n", str(cores + (cores + 1) // 2), "--dist=worksteal")
        pytest = (program(root, "python"), "-m", "pytest", "-q", "--color=no", *processes)
        code, text = step.run(*pytest)
        closing = pytest_output.closing(text)
        if code:
            raise failed_tests([text], closing)
    print(closing)


def failed_tests(outputs: Sequence[str], closing: str, target: str = "test") -> StepFailed:
    """`outputs`: of the runs of pytest that failed. `closing`: the closing line of all runs."""
    names = pytest_output.failed(*outputs)
    if not names:
        return StepFailed(pytest_output.closing(*outputs) or last(r"^.*\S.*$", outputs[0]), f"make {target} ARGS=-v")
    more = ", ..." if names[1:] else ""
    note = f"{len(names)} of {pytest_output.total(closing)}: {names[0]}{more}"
    return StepFailed(note, f'make {target} ARGS="{pytest_output.selection(names[0])}"')


# --- tests on a real cluster

E2E = {  # by target, what pytest is told
    "e2e": ("tests/e2e",),
    "e2e-versions": ("tests/e2e/test_versions.py", "--schedulers=others"),
}
# Most tests wait most of the time: two clusters side by side, each takes the next file when it has done one. The order
# of files is that of tests/e2e/conftest.py. What measures is left for the end, when nothing else runs.
LANES = ("-m", "not alone", "-n", "2", "--dist=loadfile", "--no-loadscope-reorder")
RUNS = {"e2e": (LANES, ("-m", "alone", "--rounds=1"))}  # by target, what is added for each run of pytest


def programs(root: Path, target: str) -> int:
    """The control plane's programs, one step for each that has to be made; the exit code if something is missing."""
    command = (program(root, "python"), "-m", "tests.e2e.harness.binaries")
    missing = subprocess.run(
        (*command, "list", target), cwd=root, env=environ(), stdout=subprocess.PIPE, text=True, check=False
    )
    for name in missing.stdout.splitlines():
        with Step(root, name, name.replace(" ", "-")) as step:
            code, text = step.run(*command, "make", name)
            if code:
                raise StepFailed(last(r"^error: .*", text) or last(r"^.*\S.*$", text), f"make {target}, with a network")
    return missing.returncode


def e2e(root: Path, target: str) -> None:
    pytest = (program(root, "python"), "-m", "pytest", "-q", "--color=no", "--durations=20", *E2E[target])
    with Step(root, "cluster tests", target) as step:
        results = [step.run(*pytest, *words) for words in RUNS.get(target, ((),))]
        texts = [text for _, text in results]
        closing = pytest_output.closing(*texts)
        if any(code for code, _ in results):
            raise failed_tests([text for code, text in results if code], closing, target)
    figures, kept = pytest_output.measured(*texts), root / ".build" / "log" / "e2e" / "figures.txt"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(figures)
    print(f"{figures}{closing}")


# --- shared


def digest(files: Iterator[Path], *texts: str) -> str:
    whole = hashlib.sha256("\0".join(texts).encode())
    for file in files:
        whole.update(f"\0{file}\0".encode() + file.read_bytes())
    return whole.hexdigest()


def last(pattern: str, text: str) -> str:
    matches: list[str] = re.findall(pattern, text, re.MULTILINE)
    return matches[-1] if matches else ""


def become(root: Path, lock: IO[str], *command: str) -> NoReturn:
    """Let the program have the terminal, and keep .venv from being made again while it runs."""
    os.set_inheritable(lock.fileno(), True)
    os.chdir(root)
    os.execve(command[0], command, environ())


def run_e2e(root: Path, lock: IO[str], target: str, args: list[str]) -> int:
    code = programs(root, target)
    if code == 0 and target == "e2e":
        ensure(root, BROWSER, target)
    if code == 0 and args:
        become(root, lock, program(root, "python"), "-m", "pytest", "-q", *E2E[target], *args)
    if code == 0:
        e2e(root, target)
    return code


def run_cluster(root: Path, lock: IO[str], args: list[str]) -> int:
    return programs(root, "cluster") or become(root, lock, program(root, "python"), "-m", "tools.cluster", *args)


MODULES = {  # targets that are one program
    "bench": "bench", "bench-packing": "bench.replays", "soak": "tests.adversary", "image": "tools.image"
}  # fmt: skip


def main(target: str, args: list[str], root: Path = ROOT) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a step ends what it started
    try:
        with environment(root) as lock:
            if target == "demo":
                become(root, lock, program(root, "gpushare"), "demo", *args)
            if target in MODULES:
                become(root, lock, program(root, "python"), "-m", MODULES[target], *args)
            if target == "cluster":
                return run_cluster(root, lock, args)
            if target in E2E:
                return run_e2e(root, lock, target, args)
            if target == "test" and args:  # someone is after a few tests: their output is what is wanted
                become(root, lock, program(root, "python"), "-m", "pytest", "-q", *args)
            lint(root, *(compiling(root) if target == "test" else ()))
            if target == "test":
                ensure(root, COMPILER, target)
                tests(root)
    except StepFailed:
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], shlex.split(os.environ.get("ARGS", ""))))
