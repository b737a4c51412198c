"""The processes of a run, each with its log. A state file lists them, so that even a killed run leaves none behind.

Children die with this process (setpriv). If one survives, the next run finds it in the state file by its id and start
time and ends it. An id that belongs to another process by now is not touched.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

PATIENCE = 10.0  # seconds for a process to end by itself
GONE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


class Ended(Exception):
    """A process that should be running is not."""


class Process:
    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name, self.log, self.popen = name, log, popen
        self.started = start_time(popen.pid)

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def check(self) -> None:
        if not self.running:
            raise Ended(f"{self.name} ended with exit code {self.popen.returncode}; {self.log}:\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 64_000))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


class Processes:
    """What is running, in the order in which it was started."""

    def __init__(self, logs: Path, state: Path) -> None:
        self.logs, self.running = logs, list[Process]()
        self._state = state

    def start(self, name: str, *command: str | Path, environment: Mapping[str, str] | None = None) -> Process:
        """Not from a thread that ends before the process should: the kernel would take that for our death."""
        log = self.logs / f"{name}.log"
        with log.open("ab") as output:
            popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us: we end them one after the other
                env=dict(os.environ if environment is None else environment),
            )  # fmt: skip
        process = Process(name, popen, log)
        self.running.append(process)
        self._write_down()
        return process

    async def end(self, process: Process, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it, by force if it takes too long, and returns its exit code."""
        if process.running:
            process.popen.send_signal(number)
        patience_ends = time.monotonic() + PATIENCE
        while process.running:
            if time.monotonic() > patience_ends:
                process.popen.kill()
            await asyncio.sleep(0.02)
        if process in self.running:
            self.running.remove(process)
            self._write_down()
        return process.popen.returncode

    async def end_all(self, by_force: frozenset[str]) -> None:
        """The last started first."""
        for process in reversed(list(self.running)):
            await self.end(process, signal.SIGKILL if process.name in by_force else signal.SIGTERM)
        self._state.unlink(missing_ok=True)

    def _write_down(self) -> None:
        entries = [{"name": p.name, "pid": p.popen.pid, "started": p.started} for p in self.running]
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(entries))
        new.rename(self._state)


def die_with_parent() -> None:
    """This process is killed when the one that started it ends, however that ended, and its children with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), f"prctl: {os.strerror(ctypes.get_errno())}")


def end_leftovers(state: Path) -> list[str]:
    """Ends what a killed run left running, and says what that was."""
    try:
        entries = json.loads(state.read_text())
    except (OSError, ValueError):
        return []
    ended = []
    for entry in reversed(entries):
        pid, started = entry["pid"], entry["started"]
        if started and start_time(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            patience_ends = time.monotonic() + GONE_SECONDS
            while start_time(pid) == started and time.monotonic() < patience_ends:
                time.sleep(0.02)
            ended.append(entry["name"])
    state.unlink()
    return ended


def start_time(pid: int) -> int:
    """In ticks since boot: with the id it names a process for good. 0 if there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in ("Z", "X") else int(fields[19])
