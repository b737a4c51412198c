"""The few connections that are kept, and what is sent over them.

A connection is used only with the credentials it was made with, and not after it was idle for a while: the API server,
or something in between, may be about to close it.
"""

import asyncio
import contextlib
import re
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Final

import yarl

from gpushare.kube.auth.login import Access
from gpushare.kube.kept.answer import Answer
from gpushare.kube.kept.connection import Connection
from gpushare.kube.kept.limits import Limits

IDLE_SECONDS: Final = 15.0  # as aiohttp's client
CONNECT_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0  # after one could not be opened
WAIT_SECONDS: Final = 0.25  # for one that comes free

_TARGET = re.compile(r"/[!-~]*")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class Pool:
    def __init__(self, access: Access, most: int, headers: Mapping[str, str], seconds: float) -> None:
        """`most`: connections; 0: none, and none where there is a proxy. `headers`: of every request. `seconds`: for
        each."""
        self._access, self._headers, self._limits = access, headers, Limits(seconds)
        self._url = _url(access.server)
        self._prefix = self._url.raw_path.rstrip("/")
        self._last: tuple[Mapping[str, str], str] = {}, ""  # headers, and how they are written
        self._most = most if self._url.host and access.proxy is None else 0
        self._connections: list[Connection] = []
        self._idle: list[Connection] = []  # those of them that are not in use, the last used last
        self._waiting: deque[asyncio.Future[None]] = deque()  # for one that comes free
        self._opening: asyncio.Task[None] | None = None
        self._not_before = 0.0  # the loop's time
        self._odd = False  # what answers there is not an API server

    @property
    def is_on(self) -> bool:
        """Whether connections are kept at all."""
        return self._most > 0 and not self._odd

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer | None:
        """None: nothing was sent. Raises TimeoutError or ConnectionError: it may have been carried out."""
        if not self.is_on:
            return None
        target, fields = self._prefix + path, self._written(headers)
        if not (fields and _TARGET.fullmatch(target)):
            return None
        connection = self._free() or await self._next()
        if connection is None:
            return None
        head = f"POST {target} HTTP/1.1\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
        try:
            return await connection.ask(head.encode() + body, self._limits)
        finally:
            self._odd |= connection.odd
            self._idle.append(connection)
            self._wake()

    def _written(self, headers: Mapping[str, str]) -> str:
        """As lines; empty if that cannot be. They are the same for most requests, so the last ones are kept."""
        if headers != self._last[0]:
            fields = {"Host": self._url.host_port_subcomponent or "", **self._headers, **headers}
            valid = all(map(_VALUE.fullmatch, fields.values()))
            lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items()]) if valid else ""
            self._last = dict(headers), lines
        return self._last[1]

    async def close(self) -> None:
        self._most = 0
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        for connection in self._connections:
            connection.close()

    def _free(self) -> Connection | None:
        """The last used, so that those that are not needed are closed."""
        now, context = asyncio.get_running_loop().time(), self._access.ssl
        while self._idle and now - self._idle[0].used > IDLE_SECONDS:
            self._drop(self._idle.pop(0))
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.context is context:
                return connection
            self._drop(connection)
        return None

    async def _next(self) -> Connection | None:
        """The next that comes free or is opened. None: there is none to wait for, or it takes long. To wait a little
        costs less than the ordinary way, which opens a connection of its own."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    self._open_another()
                    if not self._connections and self._opening is None:
                        return None
                    freed = asyncio.get_running_loop().create_future()
                    self._waiting.append(freed)
                    await freed
                    connection = self._free()
                    if connection is not None:
                        return connection
        except TimeoutError:
            return None

    def _wake(self) -> None:
        """Whoever waits longest looks again."""
        while self._waiting:
            freed = self._waiting.popleft()
            if not freed.done():
                freed.set_result(None)
                return

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._connections.remove(connection)

    def _open_another(self) -> None:
        loop = asyncio.get_running_loop()
        if len(self._connections) < self._most and self._opening is None and loop.time() >= self._not_before:
            self._opening = loop.create_task(self._open(self._access.ssl))

    async def _open(self, context: ssl.SSLContext | None) -> None:
        """A failure is nobody's: aiohttp's client says why, if it fails as well."""
        loop, host, port = asyncio.get_running_loop(), self._url.host, self._url.port
        assert host is not None
        self._not_before = loop.time() + AGAIN_SECONDS
        name = (self._access.server_name or host) if context is not None else None
        try:
            with contextlib.suppress(OSError, ValueError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, connection = await loop.create_connection(
                        lambda: Connection(context), host, port or 0, ssl=context, server_hostname=name
                    )  # fmt: skip
                self._connections.append(connection)
                self._idle.append(connection)
                self._not_before = 0.0
        finally:
            self._opening = None
            for _ in range(len(self._waiting)):  # if that failed, nobody needs to wait for it
                self._wake()


def _url(server: str) -> yarl.URL:
    try:
        return yarl.URL(server, encoded=True)
    except ValueError:
        return yarl.URL()  # aiohttp's client says what is wrong with it
