"""Runs NVIDIA's control program: as the daemon, in the foreground, and with one command for the daemon that runs.

Every command has a time limit. What goes wrong is told apart in one sentence each (`Trouble`): it hangs, it refuses, it
answers nonsense. A program that is not there is an error for people.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpushare.core.facts import names
from gpushare.mps import commands
from gpushare.obs import errors

PROGRAM: Final = "nvidia-cuda-mps-control"
LIMIT_SECONDS: Final = 5.0
LARGEST: Final = 65536  # bytes of an answer; clients can reach the pipe folder, so it may be anybody's
KILLED_SECONDS: Final = 1.0  # for a program that was killed to be gone

HANGS: Final = 'the MPS daemon has not answered "{command}" within {limit:g} s'
REFUSES: Final = 'the MPS daemon refuses "{command}": {words}'
NONSENSE: Final = 'the MPS daemon answers "{command}" with "{words}"'
FLOODS: Final = f'the MPS daemon answers "{{command}}" with more than {LARGEST} bytes'
NOT_RUN: Final = f"{PROGRAM} cannot be run: {{why}}"
NO_WORDS: Final = "exit code {code}"


class Trouble(Exception):
    """The daemon does not do its work. The text is one sentence about it, the same as long as nothing changes."""


class Control:
    """`pipe`, `log`: the daemon's folders. `path`: where the program is looked for; None: as a shell does."""

    def __init__(self, pipe: Path, log: Path, *, path: str | None = None, limit: float = LIMIT_SECONDS) -> None:
        self._pipe, self._log, self._path, self._limit = pipe, log, path, limit

    def program(self) -> str:
        """Raises UserError if it is not there."""
        found = shutil.which(PROGRAM, path=self._path)
        if found is None:
            raise errors.not_asked(
                f"{PROGRAM} not found",
                "no NVIDIA driver in this container, or only a part of it",
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility and the nvidia runtime; on the node: which " + PROGRAM,
            )
        return found

    async def start(self) -> asyncio.subprocess.Process:
        """The daemon, in a session of its own: a signal to us is not one to it, and its servers end with it."""
        return await self._run("-f", stdin=asyncio.subprocess.DEVNULL)

    async def ask(self, command: str, limit: float | None = None) -> str:
        """What the daemon answers. Raises Trouble."""
        limit = self._limit if limit is None else limit
        process = await self._run(stdin=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(limit):
                answer = await _answer(process, command)
                await process.wait()
        except TimeoutError:
            raise Trouble(HANGS.format(command=command, limit=limit)) from None
        finally:
            await killed(process)
        text = answer.decode(errors="replace")
        if process.returncode:
            words = commands.in_words(text) or NO_WORDS.format(code=process.returncode)
            raise Trouble(REFUSES.format(command=command, words=words))
        return text

    async def order(self, command: str) -> None:
        """A command that answers nothing if it is obeyed."""
        words = commands.in_words(await self.ask(command))
        if words:
            raise Trouble(REFUSES.format(command=command, words=words))

    async def servers(self) -> list[int]:
        """The pids of the servers that run."""
        answer = await self.ask(commands.SERVERS)
        pids = commands.numbers(answer)
        if pids is None:
            raise Trouble(NONSENSE.format(command=commands.SERVERS, words=commands.in_words(answer)))
        return pids

    async def percentage(self) -> float:
        answer = await self.ask(commands.PERCENTAGE)
        percent = commands.percentage(answer)
        if percent is None:
            raise Trouble(NONSENSE.format(command=commands.PERCENTAGE, words=commands.in_words(answer)))
        return percent

    async def _run(self, *words: str, stdin: int) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                self.program(), *words, env=self._environment(), start_new_session=True, stdin=stdin,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            raise Trouble(NOT_RUN.format(why=error.strerror)) from None

    def _environment(self) -> Mapping[str, str]:
        """Numbers of GPUs in the order of PCIe, as the driver counts them: CUDA's own order is by speed. Limits of
        another daemon's clients in our environment would count for every client of this one."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_MPS_")}
        return inherited | {
            names.MPS_PIPE: str(self._pipe), "CUDA_MPS_LOG_DIRECTORY": str(self._log), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"
        }  # fmt: skip


async def _answer(process: asyncio.subprocess.Process, command: str) -> bytes:
    """All that it prints. Raises Trouble if that has no end."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{command}\n".encode())
    process.stdin.close()
    answer = b""
    while content := await process.stdout.read(LARGEST):
        answer += content
        if len(answer) > LARGEST:
            raise Trouble(FLOODS.format(command=command))
    return answer


async def killed(process: asyncio.subprocess.Process) -> None:
    """Ended with all that it started, whatever they do, unless one hangs inside the driver, where nothing ends it.
    While its output is open one of them runs, so their session has not gone to others."""
    assert process.stdout is not None
    if process.returncode is not None and process.stdout.at_eof():
        return
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILLED_SECONDS):  # wait_for may lose a cancellation (Python 3.11)
            while await process.stdout.read(LARGEST):
                pass  # a pipe is closed only when all is read
            await process.wait()
