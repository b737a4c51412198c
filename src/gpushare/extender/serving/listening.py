"""Ports on which plain requests are answered by a `Front`, and all others by an application of aiohttp's."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from gpushare.extender.serving import heads
from gpushare.extender.serving.front import Front
from gpushare.obs import http

REPLY_SECONDS: Final = 4.5  # at the end, for replies that are due


class Listening:
    def __init__(self, runner: web.AppRunner, front: Front) -> None:
        self._runner, self._front = runner, front
        self._servers: list[asyncio.Server] = []

    @property
    def addresses(self) -> list[Any]:
        return [socket.getsockname() for server in self._servers for socket in server.sockets]

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            self._front, host, port, ssl=tls, backlog=http.BACKLOG, reuse_address=True
        )  # fmt: skip
        self._servers.append(server)

    async def cleanup(self) -> None:
        """Lets running requests finish."""
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # what came before has begun then
        await asyncio.gather(self._front.finish(REPLY_SECONDS), self._runner.cleanup())


async def listen(
    app: web.Application,
    verbs: Mapping[str, heads.Verb],
    host: str,
    ports: Sequence[int],
    *,
    tls: ssl.SSLContext | None,
    other_port: str,
) -> Listening:
    """Listening when it returns. `verbs`: what is asked plainly, by path. `other_port`: how to choose another port."""
    runner = http.runner(app)
    await http.listen(runner, host, [])
    assert runner.server is not None
    listening = Listening(runner, Front(verbs, runner.server, http.KEEP_ALIVE))
    for port in ports:
        try:
            await listening.open(host, port, tls)
        except (OSError, UnicodeError) as error:
            await listening.cleanup()
            raise await http.cannot_listen(host, port, error, other_port) from error
    return listening
