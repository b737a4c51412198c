"""The open streams: each frame is written once to each of them, straight into its connection.

A frame is the same bytes for everybody. It is wrapped as a chunk of HTTP once, and then costs one call of the system
for each client: no task wakes up, nothing is copied. Who reads too slowly is dropped, and comes back by itself. One
task looks after all streams: a line now and then that keeps proxies from closing them, and whether those who read may
still do so.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from aiohttp import HttpVersion11, web

from gpushare.dashboard.server.problems import Problem
from gpushare.dashboard.server.sessions import Session

MOST: Final = 500
MOST_OF_SESSION: Final = 32
MOST_BEHIND: Final = 256 * 1024  # bytes that a client has not read yet
LOOK_SECONDS: Final = 1.0
COMMENT_SECONDS: Final = 15.0
REVIEW_SECONDS: Final = 5.0  # between two looks at whether somebody may still read
LAST_SECONDS: Final = 5.0  # for a client to read why it is dropped
COMMENT: Final = b": \n\n"
RESET: Final = b"event: reset\ndata: \n\n"
TOO_SLOW: Final = "the connection is too slow: {kib} KiB were not read"
ENDING: Final = "the dashboard is being stopped"
FULL: Final = "too many streams are open"
HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",  # nginx would keep frames until it has many
}


class Ticks(Protocol):
    """Where frames come from."""

    def since(self, epoch: str, seq: int) -> list[bytes] | None: ...

    def subscribe(self, client: Callable[[bytes], None], /) -> Callable[[], None]: ...


class _Client:
    __slots__ = ("ended", "fileno", "session", "transport")

    def __init__(self, transport: asyncio.Transport, session: Session) -> None:
        self.transport, self.session = transport, session
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.fileno: int = transport.get_extra_info("socket").fileno()


class Streams:
    """`ended`: why a session must not go on; empty: it may. `filenos`: gets those of connections that are streams."""

    def __init__(
        self,
        ticks: Ticks,
        ended: Callable[[Session], Awaitable[str]],
        filenos: set[int],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.filenos = filenos
        self._ticks, self._ended, self._sleep, self._clock = ticks, ended, sleep, clock
        self._clients: set[_Client] = set()
        self._opening: Counter[bytes] = Counter()  # by session: also those that are not among the clients yet
        ticks.subscribe(self._send)

    async def serve(self, request: web.BaseRequest, session: Session) -> web.StreamResponse:
        """Until the client goes, or has to."""
        if request.version < HttpVersion11:
            raise Problem(426, "a stream needs HTTP/1.1", "", "is there an old proxy in between?")
        self._refuse_too_many(session)
        self._opening[session.key] += 1
        client = None
        try:
            response = web.StreamResponse(headers=HEADERS)
            response.force_close()  # the connection ends with the stream
            await response.prepare(request)
            await response.write(COMMENT)
            if isinstance(request.transport, asyncio.Transport):  # else it has gone
                # No await in between: the frames before and those that are sent from now on are all there are.
                client = _Client(request.transport, session)
                client.transport.write(_chunk(self._missed(request)))
                self._clients.add(client)
                self.filenos.add(client.fileno)
                await client.ended
            return response
        finally:
            self._opening -= Counter({session.key: 1})
            if client is not None:
                self._forget(client)

    async def run(self) -> None:
        """For ever."""
        comment = review = self._clock()
        while True:
            await self._sleep(LOOK_SECONDS)
            now = self._clock()
            for client in [client for client in self._clients if client.transport.is_closing()]:
                self._end(client)
            if now - comment >= COMMENT_SECONDS:
                comment = now
                self._send(COMMENT)
            if now - review >= REVIEW_SECONDS:
                review = now
                await self._review()

    async def close(self) -> None:
        """Tells everybody, before the end."""
        for client in list(self._clients):
            self._bye(client, ENDING)
        await asyncio.sleep(0)  # for those who wait on a client

    def count(self) -> int:
        return self._opening.total()

    def _refuse_too_many(self, session: Session) -> None:
        if self.count() >= MOST:
            why = f"{MOST} are open in all"
        elif self._opening[session.key] >= MOST_OF_SESSION:
            why = f"you have {MOST_OF_SESSION} open, one for each tab"
        else:
            return
        raise Problem(503, FULL, why, "close a tab, and try again in half a minute", headers={"Retry-After": "30"})

    def _missed(self, request: web.BaseRequest) -> bytes:
        """What came since the last frame that this client has."""
        last = request.headers.get("Last-Event-ID") or request.query.get("from", "")
        epoch, _, number = last.rpartition(".")
        known = number.isascii() and number.isdecimal() and len(number) <= 15
        frames = self._ticks.since(epoch, int(number)) if known else None
        return RESET if frames is None else b"".join(frames) or COMMENT

    def _send(self, frame: bytes) -> None:
        chunk = _chunk(frame)
        for client in list(self._clients):
            if client.transport.is_closing():
                continue  # it has gone, and is forgotten within a second
            behind = client.transport.get_write_buffer_size()
            if behind > MOST_BEHIND:
                self._bye(client, TOO_SLOW.format(kib=behind // 1024))
            else:
                client.transport.write(chunk)

    async def _review(self) -> None:
        sessions = {id(client.session): client.session for client in self._clients}
        why = dict(zip(sessions, await asyncio.gather(*map(self._ended, sessions.values())), strict=True))
        for client in list(self._clients):
            if sentence := why.get(id(client.session), ""):
                self._bye(client, sentence)

    def _bye(self, client: _Client, why: str) -> None:
        if not client.transport.is_closing():  # else it has gone, and over TLS nothing can be written any more
            client.transport.write(_chunk(f"event: bye\ndata: {why}\n\n".encode()))
        # It is not waited for: who does not read must not keep a connection.
        asyncio.get_running_loop().call_later(LAST_SECONDS, client.transport.abort)
        self._end(client)

    def _end(self, client: _Client) -> None:
        self._forget(client)
        if not client.ended.done():
            client.ended.set_result(None)

    def _forget(self, client: _Client) -> None:
        self._clients.discard(client)
        self.filenos.discard(client.fileno)


def _chunk(frame: bytes) -> bytes:
    """As HTTP/1.1 sends a body whose length nobody knows."""
    return b"%x\r\n%b\r\n" % (len(frame), frame)
