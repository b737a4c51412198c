"""Listens for browsers. However many connect, those who have a stream keep it, and who comes last is answered."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Set
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from gpushare.dashboard.server import guard
from gpushare.obs import http

CONNECTIONS: Final = 800  # open at a time; streams are at most 500 of them, and a shell allows 1024 files
BACKLOG: Final = 64
TLS_BACKLOG: Final = 16  # each handshake costs a millisecond, in which nothing is sent to others
KEEP_ALIVE: Final = 75.0
STOP_SECONDS: Final = 1.0

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def listen(
    handle: Handle, host: str, port: int, *, tls: ssl.SSLContext | None = None, spared: Set[int] = frozenset()
) -> web.ServerRunner:
    """Listening when it returns. `spared`: connections that are not closed for new ones."""
    server = web.Server(
        handle,
        request_factory=_request,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE,
        auto_decompress=False,  # a small body may decompress to any size
    )
    runner = web.ServerRunner(server, shutdown_timeout=STOP_SECONDS)
    backlog = BACKLOG if tls is None else TLS_BACKLOG
    await http.listen(runner, host, [port], tls=tls, most=CONNECTIONS, backlog=backlog, spared=spared)
    return runner


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> guard.Request:
    loop = asyncio.get_running_loop()
    return guard.Request(message, payload, protocol, writer, task, loop, client_max_size=guard.LARGEST)
