"""The real extender as a process: start it, wait until it is ready, kill it. Its log goes to a file."""

import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path

import aiohttp

READY_SECONDS = 20.0
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


class Extender:
    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._kubeconfig, self.log = kubeconfig, log
        self._port = _free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/gpushare-scheduler"

    async def start(self) -> None:
        """Returns when it is ready."""
        words = ("extender", "--port", str(self._port), "--kubeconfig", str(self._kubeconfig))
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
                            f"the extender ended with exit code {self._process.returncode}; its log: {self.log}"
                        )
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise NotReady(f"the extender is not ready after {READY_SECONDS:.0f} s; its log: {self.log}") from None

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

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(f"http://127.0.0.1:{self._port}/readyz") as response:
                return response.status == 200
        return False


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
