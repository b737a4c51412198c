"""The real extender and the real dashboard, each as a process: start it, wait until it is ready, end it.

Their logs go to files.
"""

import asyncio
import contextlib
import re
import signal
import socket
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

READY_SECONDS = 20.0
LOOK_SECONDS = 0.02  # between two looks at whether it is ready
# On Linux it ends with the demo even if the demo is killed, so that nothing is left behind.
PROGRAM = """
import ctypes, signal, sys
if hasattr(ctypes.CDLL(None), "prctl"):
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
from gpushare.cli import main
sys.exit(main())
"""


class NotReady(Exception):
    """It did not start. The text says where to look."""


class Program(ABC):
    """`name`: the command of gpushare."""

    name = ""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._kubeconfig, self.log = kubeconfig, log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when it is ready."""
        words = (self.name, *self._words(), "--kubeconfig", str(self._kubeconfig))
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM, *words, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the demo, which then ends it
            )  # fmt: skip
        try:
            async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession() as session:
                while not await self._is_ready(session):
                    if self._process.returncode is not None:
                        raise NotReady(
                            f"the {self.name} ended with exit code {self._process.returncode}; its log: {self.log}"
                        )
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise NotReady(f"the {self.name} is not ready after {READY_SECONDS:.0f} s; its log: {self.log}") from None

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    def _words(self) -> tuple[str, ...]:
        """Its options."""
        return ()

    @abstractmethod
    async def _is_ready(self, session: aiohttp.ClientSession) -> bool: ...


class Extender(Program):
    name = "extender"

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        super().__init__(kubeconfig, log)
        self._port = _free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/gpushare-scheduler"

    def _words(self) -> tuple[str, ...]:
        return ("--port", str(self._port))

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(f"http://127.0.0.1:{self._port}/readyz") as response:
                return response.status == 200
        return False


class Dashboard(Program):
    name = "dashboard"

    @property
    def url(self) -> str:
        """Where a browser may log in, once: the newest that it has shown. Empty: it does not listen yet."""
        return next(reversed(re.findall(r"^Dashboard: (\S+)$", self.log.read_text(), re.MULTILINE)), "")

    async def shown(self) -> dict[str, Any]:
        """What a browser gets to draw its map from."""
        cookies = aiohttp.CookieJar(unsafe=True)  # also of a host that has no name
        async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession(cookie_jar=cookies) as browser:
            async with browser.get(self.url, raise_for_status=True) as page:
                place = page.url
            found = None
            while found is None:
                found = await self._snapshot(browser, place)
        return found

    async def invited(self) -> str:
        """A link that works. If the one that was shown is used already, it shows a new one to whoever asks without a
        session."""
        async with aiohttp.ClientSession() as stranger, stranger.get(URL(self.url).join(URL("api/me"))):
            return self.url

    async def _snapshot(self, browser: aiohttp.ClientSession, place: URL) -> dict[str, Any] | None:
        """None: it still reads the cluster; to be asked again."""
        async with browser.get(place.join(URL("api/snapshot"))) as answer:
            if answer.status == 200:
                found: dict[str, Any] = await answer.json()
                return found
        await asyncio.sleep(LOOK_SECONDS)
        return None

    def _words(self) -> tuple[str, ...]:
        return ("--no-browser",)

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        return bool(self.url)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
