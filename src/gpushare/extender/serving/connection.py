"""One connection of a scheduler: plain requests are answered here, the first other one takes it to aiohttp.

At any moment a connection is idle, has a part of a plain request, or waits for the reply to one. Whoever sends before
the reply has come is read when it was written. Whoever does not read replies is not read, either.
"""

import asyncio
from typing import Protocol, cast

from gpushare.extender.serving import heads

END = b"\r\n\r\n"


class Owner(Protocol):
    """Who has all connections."""

    heads: heads.Heads
    ticks: int  # time since the start
    stopping: bool

    def opened(self, connection: "Connection") -> None: ...

    def closed(self, connection: "Connection") -> None: ...

    def ordinary(self) -> asyncio.Protocol:
        """One that answers every request."""

    def answer(self, body: bytes) -> bytes:
        """The whole answer with this body."""


class Connection(asyncio.Protocol):
    __slots__ = ("_body_at", "_got", "_jammed", "_owner", "_pieces", "_plain", "_transport", "busy", "last")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []  # what came of a request that is not complete, or while another is answered
        self._got = 0  # bytes in pieces
        self._plain: heads.Plain | None = None  # what they are a part of
        self._body_at = 0
        self._jammed = False  # the other side does not read
        self.busy = False  # a reply is due
        self.last = 0  # the tick at which something happened

    @property
    def is_partial(self) -> bool:
        return bool(self._pieces) and not self.busy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.last = self._owner.ticks
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.closed(self)

    def data_received(self, data: bytes) -> None:
        plain = self._plain
        if self.busy or self._owner.stopping:
            self._hold(data)
        elif plain is not None:
            self._pieces.append(data)
            self._got += len(data)
            if self._got >= self._body_at + plain.length:
                self._whole(self._take(), plain, self._body_at)
        else:
            self.last = self._owner.ticks
            end = data.find(END, 0, heads.LONGEST)
            plain = self._owner.heads.read(data[:end]) if end > 0 else None
            if plain is None:
                self._to_ordinary([data])
            elif len(data) >= end + len(END) + plain.length:
                self._whole([data], plain, end + len(END))
            else:
                self._plain, self._body_at = plain, end + len(END)
                self._pieces.append(data)
                self._got = len(data)

    def pause_writing(self) -> None:
        self._jammed = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._jammed = False
        if self._transport is not None and not (self.busy and self._pieces):  # those wait for the reply
            self._transport.resume_reading()

    def give_up_partial(self) -> None:
        """The rest of a request does not come: aiohttp waits for it, and says so in the end."""
        self._to_ordinary(self._take())

    def close(self) -> None:
        """After the reply that is due. What the other side does not read is lost."""
        if self._transport is not None and not self.busy:
            if self._jammed:
                self._transport.abort()
            else:
                self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _whole(self, pieces: list[bytes], plain: heads.Plain, body_at: int) -> None:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(data) > body_at + plain.length:  # the next request came without waiting for a reply
            self._to_ordinary(pieces)
            return
        self.busy = True
        plain.verb(data[body_at:], self._reply)

    def _reply(self, body: bytes) -> None:
        self.busy = False
        self.last = self._owner.ticks
        if self._transport is None:
            return
        self._transport.write(self._owner.answer(body))
        if self._owner.stopping:
            self._transport.close()
        elif self._pieces:
            self._transport.resume_reading()
            self._to_ordinary(self._take())

    def _hold(self, data: bytes) -> None:
        if self.busy and self._transport is not None:
            self._pieces.append(data)
            self._transport.pause_reading()

    def _take(self) -> list[bytes]:
        pieces, self._pieces, self._plain, self._got = self._pieces, [], None, 0
        return pieces

    def _to_ordinary(self, pieces: list[bytes]) -> None:
        """For good. In the pieces as they came: what aiohttp answers to bad bytes depends on them."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        self._owner.closed(self)
        ordinary = self._owner.ordinary()
        transport.set_protocol(ordinary)
        ordinary.connection_made(transport)
        if self._jammed:
            ordinary.pause_writing()
        for piece in pieces:
            ordinary.data_received(piece)
