"""Asks the driver through a process of its own (`inquiry`), for a bounded time."""

import asyncio
import contextlib
import signal
import sys
from typing import Final

import msgspec

from gpushare.gpu import failures
from gpushare.validate.machine import host
from gpushare.validate.machine.host import Places
from gpushare.validate.rules.driver import Answer, Candidate

LIMIT_SECONDS: Final = 30.0  # for each unused GPU the driver may need seconds
END_SECONDS: Final = 1.0
DIED: Final = "the driver's library ended the process that asked it"
NOT_STARTED: Final = "the driver was not asked: no process can be started for that"
SEE_LIMITS: Final = "on the node: free memory, and how many processes it runs; limits of gpushare-validator"
SEE: Final = "on the node: nvidia-smi; it shows what is wrong"


class Asking:
    """One question at a time. A process that cannot even be killed is waited for, and no other is started."""

    def __init__(self, places: Places, *, limit: float = LIMIT_SECONDS) -> None:
        self._places, self._limit = places, limit
        self._stuck: asyncio.subprocess.Process | None = None

    async def ask(self, asked: Candidate) -> Answer:
        if self._stuck is not None and self._stuck.returncode is None:
            return _hangs(self._limit)
        self._stuck = None
        root = self._places.inside(host.dev_root(self._places, asked.of_host) or "/")
        library = asked.library
        if root != self._places.root:
            library = library.removeprefix(self._places.driver_root)
        words = str(root), library, str(self._places.inside(asked.library))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "gpushare.validate.machine.inquiry", *words,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:  # too many processes, or no memory
            return Answer(what=NOT_STARTED, why=str(error.strerror).lower(), way=SEE_LIMITS)
        try:
            async with asyncio.timeout(self._limit):
                said, wrong = await process.communicate()
        except TimeoutError:
            return _hangs(self._limit)
        finally:
            await self._end(process)
        return _read(said, wrong, process.returncode or 0)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
                return
            self._stuck = process


def _read(said: bytes, wrong: bytes, code: int) -> Answer:
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(said, type=Answer)
    lines = wrong.decode(errors="replace").strip().splitlines()
    why = signal.Signals(-code).name if code < 0 else lines[-1] if lines else f"exit code {code}"
    return Answer(what=DIED, why=why, way=SEE)


def _hangs(limit: float) -> Answer:
    error = failures.hangs("NVML", limit)
    return Answer(what=error.what, why=error.why, way=error.way)
