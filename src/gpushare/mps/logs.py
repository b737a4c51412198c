"""The daemon's own log files: new lines go into our log, and no file grows for ever.

The daemon writes several lines for each question, and never begins a new file. So a file that is too large is emptied
once its lines were told. Lines that only say that we asked are left out.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from gpushare.mps import commands
from gpushare.obs import log

FILES: Final = ("control.log", "server.log")
LOOK_SECONDS: Final = 2.0
LARGEST: Final = 4 << 20  # bytes
AT_ONCE: Final = 64 << 10  # bytes that are read at one look; of more only the last so many
LONGEST_LINE: Final = 500  # characters

logger = log.get(__name__)


class Follower:
    """Tells what is written from now on."""

    def __init__(self, folder: Path, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._folder, self._sleep = folder, sleep
        self._told = {name: _size(folder / name) for name in FILES}  # bytes

    async def run(self) -> None:
        """For ever."""
        while True:
            self.look()
            await self._sleep(LOOK_SECONDS)

    def look(self) -> None:
        for name in FILES:
            path = self._folder / name
            with contextlib.suppress(OSError):  # it is not there, or no longer
                for line in self._new(path, name):
                    if commands.worth_telling(line):
                        logger.info("MPS says", file=name, line=line[:LONGEST_LINE])
                if self._told[name] > LARGEST:
                    os.truncate(path, 0)
                    self._told[name] = 0

    def _new(self, path: Path, name: str) -> list[str]:
        """Whole lines that were not told yet."""
        size = path.stat().st_size
        begin = self._told[name] if self._told[name] <= size else 0  # a new file, or emptied by somebody else
        if size - begin > AT_ONCE:
            logger.warn("MPS says too much, some of it is left out", file=name, bytes=size - begin - AT_ONCE)
            begin = size - AT_ONCE
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read(AT_ONCE)
        whole = content[: content.rfind(b"\n") + 1] or (content if len(content) == AT_ONCE else b"")
        self._told[name] = begin + len(whole)
        return whole.decode(errors="replace").replace("\0", "").splitlines()


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
