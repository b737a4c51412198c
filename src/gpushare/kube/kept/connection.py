"""One connection to the API server, for one short write at a time.

From the moment a write is handed to the system, its failure means that it may have been carried out. A connection with
anything unexpected on it is closed: what comes next could be the answer to something else.
"""

import asyncio
import ssl
from typing import cast

from gpushare.kube.kept import answer
from gpushare.kube.kept.limits import Limits


class Connection(asyncio.Protocol):
    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context  # it was made with
        self.used = 0.0  # the loop's time
        self.odd = False  # the last answer was not one
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[answer.Answer] | None = None
        self._received = b""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_free(self) -> bool:
        return self.is_open and self._answer is None

    async def ask(self, data: bytes, limits: Limits) -> answer.Answer:
        """Only while it is free. Raises TimeoutError, if a limit of these is over, or ConnectionError: the request may
        have been carried out."""
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        limit = limits.begin(self._late)
        self._transport.write(data)
        try:
            answered = await self._answer
            if answered.is_last:
                self.close()
            return answered
        except BaseException:  # also if the caller is cancelled: the answer may still come
            self.close()
            raise
        finally:
            limits.end(limit)
            self._answer, self._received, self.used = None, b"", loop.time()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.used = asyncio.get_running_loop().time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # nobody asked
            return
        self._received += data
        try:
            answered = answer.read(self._received)
        except answer.Odd:
            self.odd = True
            self._fail(ConnectionResetError())
            self.close()
        else:
            if answered is not None:
                self._answer.set_result(answered)

    def _late(self) -> None:
        self._fail(TimeoutError())

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
