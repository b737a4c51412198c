"""All connections that still are in plain hands: what they share, how long they may be silent, and their end.

One timer looks at all of them. A timer for each would cost more than the requests.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Final

from aiohttp.http import SERVER_SOFTWARE

from gpushare.extender.serving import heads
from gpushare.extender.serving.connection import Connection

TICK: Final = 0.5  # seconds
PARTIAL_TICKS: Final = 1  # that the rest of a request may take; after that aiohttp waits for it
LOOK_SECONDS: Final = 0.02  # between two looks at whether all is answered


class Front:
    """Makes the connections that asyncio's server asks for."""

    def __init__(
        self, verbs: Mapping[str, heads.Verb], ordinary: Callable[[], asyncio.Protocol], keep_alive: float
    ) -> None:
        """`verbs`: by path. `ordinary`: makes aiohttp's protocol. `keep_alive`: seconds that a connection may idle."""
        self.heads = heads.Heads(verbs)
        self.ordinary = ordinary
        self.ticks = 0
        self.stopping = False
        self._idle_ticks = keep_alive / TICK
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._second, self._fields = 0, b""

    def __call__(self) -> Connection:
        return Connection(self)

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK, self.tick)

    def closed(self, connection: Connection) -> None:
        self._open.discard(connection)

    def answer(self, body: bytes) -> bytes:
        """As aiohttp writes it."""
        now = int(time.time())
        if now != self._second:
            date = formatdate(now, usegmt=True)
            self._second, self._fields = now, f"\r\nDate: {date}\r\nServer: {SERVER_SOFTWARE}\r\n\r\n".encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d%b%b" % (
            len(body),
            self._fields,
            body,
        )

    async def finish(self, seconds: float) -> None:
        """Closes all connections. Replies that are due get so much time."""
        self.stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(connection.busy for connection in self._open):  # noqa: ASYNC110 - once in a life
                    await asyncio.sleep(LOOK_SECONDS)
        for connection in list(self._open):
            if connection.busy:
                connection.abort()

    def tick(self) -> None:
        self.ticks += 1
        for connection in list(self._open):
            silent = self.ticks - connection.last
            if connection.is_partial and silent > PARTIAL_TICKS:
                connection.give_up_partial()
            elif silent > self._idle_ticks:
                connection.close()
        self._timer = asyncio.get_running_loop().call_later(TICK, self.tick) if self._open else None
