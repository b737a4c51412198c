"""Processes of MPS that belong to our pipe folder, found by what the kernel shows; and their end.

A daemon that hangs has servers that hold the GPUs; a supervisor that was killed may have left both. Only processes with
the name of MPS whose pipe folder is ours are ever ended: another daemon of the node is not ours. The folder is compared
as each process sees it: the same path may be another folder in another container.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpushare.core.facts import names
from gpushare.obs import log

NAME: Final = "nvidia-cuda-mps"  # of daemon and servers: the kernel keeps 15 characters
GENTLE_SECONDS: Final = 2.0  # between asking a process to end and ending it
TICK: Final = 0.05

logger = log.get(__name__)


def find(pipe: Path, proc: Path = Path("/proc")) -> list[int]:
    """The pids of daemon and servers of that pipe folder, as far as we may look."""
    return sorted(_ours(pipe, proc))


async def end(pipe: Path, proc: Path = Path("/proc")) -> bool:
    """Ends all that are there now, gently first. Whether none of them is left. What comes meanwhile is not waited for:
    whoever asks the daemon something runs the same program, and may do so all the time."""
    pids = find(pipe, proc)
    for number, seconds in ((signal.SIGTERM, GENTLE_SECONDS), (signal.SIGKILL, GENTLE_SECONDS)):
        for pid in pids:
            logger.warn("ending a process of MPS", pid=pid, signal=number.name)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        pids = await _until_gone(pids, pipe, proc, seconds)
        if not pids:
            return True
    return False


async def _until_gone(pids: list[int], pipe: Path, proc: Path, seconds: float) -> list[int]:
    """Those that are still there."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := [p for p in find(pipe, proc) if p in pids]) and loop.time() < until:  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(TICK)
    return left


def _ours(pipe: Path, proc: Path) -> Iterator[int]:
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or another user's
            if (folder / "comm").read_text(errors="replace").strip() != NAME:
                continue
            its = _pipe_of((folder / "environ").read_bytes())  # empty for one that has ended
            if its and os.path.samestat((folder / "root" / its.lstrip("/")).stat(), pipe.stat()):
                yield int(folder.name)


def _pipe_of(environment: bytes) -> str:
    """The pipe folder that is in an environment; empty: none."""
    begin = f"{names.MPS_PIPE}=".encode()
    found = next((entry for entry in environment.split(b"\0") if entry.startswith(begin)), b"")
    return os.fsdecode(found.removeprefix(begin))
