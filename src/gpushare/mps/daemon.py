"""One MPS daemon: found or started, asked how it is, and ended.

A daemon of our pipe folder that answers when we start is kept: its clients would lose their GPU with it. One that does
not answer is ended first, with its servers, because they hold the GPUs.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from gpushare.mps import commands, control, leftovers
from gpushare.mps.commands import Sizes
from gpushare.mps.control import Control, Trouble
from gpushare.mps.files import Places
from gpushare.obs import log
from gpushare.obs.errors import UserError

START_SECONDS: Final = 10.0
TICK: Final = 0.2  # between two questions to a daemon that starts
QUIT_SECONDS: Final = 8  # for its servers; kubelet gives a pod 30 in all
LAST_WORDS_SECONDS: Final = 0.2  # in which they are read; its servers may hold its output open
LONGEST_LINE: Final = 65536  # characters, of what it prints
MOST_LINES, TOLD_SECONDS = 100, 60.0  # so many lines of that are logged in that time
TOO_MUCH: Final = "MPS says too much, some of it is left out"

EXITED: Final = "the MPS daemon has exited with code {code}"
KILLED: Final = "the MPS daemon was ended by signal {number}"
NOT_STARTED: Final = "the MPS daemon has not answered within {seconds:g} s after its start"
STUCK: Final = "processes of a former MPS daemon cannot be ended: {pids}"

logger = log.get(__name__)


class Daemon:
    def __init__(
        self, made: Control, places: Places, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self.found = False  # it ran already
        self._control, self._places, self._sleep = made, places, sleep
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._last_words = ""

    @property
    def pid(self) -> int:
        """0: unknown."""
        if self._process is not None:
            return self._process.pid
        return next(iter(leftovers.find(self._places.pipe, self._places.proc)), 0)

    async def begin(self) -> None:
        """Answers questions when this returns. Raises Trouble."""
        if leftovers.find(self._places.pipe, self._places.proc):
            try:
                await self._control.percentage()
            except Trouble as trouble:
                logger.warn("a former daemon does not answer", why=str(trouble))
            else:
                self.found = True
                logger.info("a daemon that runs already is kept", pid=self.pid)
                return
            if not await leftovers.end(self._places.pipe, self._places.proc):
                pids = ", ".join(map(str, leftovers.find(self._places.pipe, self._places.proc)))
                raise Trouble(STUCK.format(pids=pids))
        self._process = await self._control.start()
        self._listening = asyncio.create_task(self._listen(self._process))
        await self._answering()

    async def exited(self) -> None:
        """Waits for its end, which is Trouble. For ever, if it ran before us: then only its answers tell."""
        if self._process is None:
            await asyncio.get_running_loop().create_future()
            return
        while (code := self._process.returncode) is None:  # wait() waits for its servers, too: they have its output
            await self._sleep(TICK)
        if self._listening is not None:
            await asyncio.wait([self._listening], timeout=LAST_WORDS_SECONDS)
        sentence = KILLED.format(number=-code) if code < 0 else EXITED.format(code=code)
        raise Trouble(f"{sentence}: {self._last_words}" if self._last_words else sentence)

    async def divide(self, sizes: Sizes, *, limits: bool) -> None:
        """`limits`: of memory, too."""
        told = sizes if limits else Sizes(sizes.replicas, ())
        for command in commands.divide(told):
            await self._control.order(command)
        for pid in await self._control.servers():
            try:
                for command in commands.divide_server(told, pid):
                    await self._control.order(command)
            except Trouble:
                if pid in await self._control.servers():
                    raise  # one that has ended meanwhile needs no limits

    async def quit(self) -> None:
        """An orderly end, and a sure one if that takes too long."""
        try:
            await self._control.ask(commands.QUIT.format(seconds=QUIT_SECONDS), QUIT_SECONDS + 2.0)
            if self._process is not None:
                async with asyncio.timeout(2.0):
                    await self._process.wait()
        except (Trouble, TimeoutError, UserError) as error:  # also if its program is gone
            logger.warn("the daemon does not quit", why=str(error) or "it goes on running")
        await self.end()

    async def end(self) -> None:
        """With its servers, whatever they do."""
        if not await leftovers.end(self._places.pipe, self._places.proc):
            logger.error("processes of MPS cannot be ended", pids=leftovers.find(self._places.pipe, self._places.proc))
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._process is not None:
            await control.killed(self._process)
        self._process = self._listening = None

    async def _answering(self) -> None:
        ended = asyncio.create_task(self.exited())
        try:
            async with asyncio.timeout(START_SECONDS):
                while not ended.done():
                    with contextlib.suppress(Trouble):
                        await self._control.percentage()
                        return
                    await self._sleep(TICK)
            await ended  # its end is the reason
        except TimeoutError:
            raise Trouble(NOT_STARTED.format(seconds=START_SECONDS)) from None
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """What it prints is logged, as long as it is not too much; the last line is part of the reason if it ends."""
        assert process.stdout is not None
        clock, begun, told = asyncio.get_running_loop().time, 0.0, 0
        while content := await process.stdout.read(LONGEST_LINE):
            if clock() - begun > TOLD_SECONDS:
                begun, told = clock(), 0
            lines = [line for line in content.decode(errors="replace").splitlines() if commands.worth_telling(line)]
            self._last_words = commands.in_words(lines[-1]) if lines else self._last_words
            for line in lines[: max(MOST_LINES - told, 0)]:
                logger.info("MPS says", file="output", line=line[:500])
            if told <= MOST_LINES < told + len(lines):
                logger.warn(TOO_MUCH)
            told += len(lines)
