"""Sends the points of the buffer to InfluxDB: the oldest first, compressed, and again later if that fails.

What happens next: `protocol` says what an answer means. Points that InfluxDB will never take are given up with one log
line; anything else is tried again, while the buffer drops what has become too old.
"""

import asyncio
import gzip
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

from gpushare.kube.loop import Backoff
from gpushare.node.influx import buffer, protocol
from gpushare.node.influx.buffer import Buffer, Entry
from gpushare.node.influx.protocol import Credentials, Request, Verdict
from gpushare.obs import log
from gpushare.obs.errors import UserError

BATCH_BYTES: Final = 256 << 10  # before they are compressed
SECONDS: Final = 10.0  # for each request
RETRY: Final = (0.5, 10.0)  # the first and the longest delay in seconds
NOT_ALLOWED_SECONDS: Final = 60.0  # until it is tried again
LARGEST_ANSWER: Final = 4096  # bytes that are read
NO_MORE_THAN_A_POINT: Final = 1  # byte: `take` takes one entry in any case

NUMBERS: Final = re.compile(r"\d+")

Sleep = Callable[[float], Awaitable[object]]
logger = log.get(__name__)


class Writer:
    """`written` and `failed` count points. `credentials` is called for each request."""

    def __init__(
        self,
        url: str,
        credentials: Callable[[], Credentials],
        buffer: Buffer,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.written = 0
        self.failed = 0
        self._url, self._credentials, self._buffer = url, credentials, buffer
        self._clock, self._sleep = clock, sleep
        self._most_bytes = BATCH_BYTES
        self._retry = Backoff(RETRY)
        self._sending = 0  # points
        self._complaint = ""  # the last one
        self._refusal = ""  # the last one, without its numbers
        self._awake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Points that are not written yet."""
        return self._buffer.points + self._sending

    def add(self, lines: list[bytes]) -> None:
        """Never waits."""
        if lines:
            self._buffer.add(buffer.entry(self._clock(), lines), self._clock())
            self._awake.set()

    async def run(self) -> None:
        """For ever."""
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                await self._awake.wait()
                # While nothing can be written, little is compressed for nothing.
                most = NO_MORE_THAN_A_POINT if self._complaint else self._most_bytes
                taken = self._buffer.take(most, self._clock())
                if taken:
                    await self._sleep(await self._send(session, taken))
                else:
                    self._awake.clear()

    async def _send(self, session: aiohttp.ClientSession, taken: list[Entry]) -> float:
        """Returns how long to wait before the next."""
        points = self._sending = sum(len(entry.lines) for entry in taken)
        found, words = Verdict.LATER, ""
        try:
            found, words = await self._write(session, taken)
        finally:
            self._sending = 0
            if found in (Verdict.LATER, Verdict.NOT_ALLOWED, Verdict.NO_DATABASE):
                self._buffer.give_back(taken, self._clock())
        match found:
            case Verdict.WRITTEN:
                self._wrote(points)
            case Verdict.BAD:
                self._give_up(points, words)
            case Verdict.TOO_LARGE:
                self._divide(taken, words)
                return self._retry.delay()  # a server may say so of everything
            case Verdict.NO_DATABASE:
                return self._retry.delay()
            case Verdict.LATER:
                self._complain("InfluxDB does not answer, points are kept", words)
                return self._retry.delay()
            case Verdict.NOT_ALLOWED:
                self._complain("InfluxDB does not let us write, points are kept", words)
                return NOT_ALLOWED_SECONDS
        return 0.0

    async def _write(self, session: aiohttp.ClientSession, taken: list[Entry]) -> tuple[Verdict, str]:
        """NO_DATABASE: there was none, and it is made now."""
        try:
            credentials = self._credentials()
        except UserError as error:
            return Verdict.NOT_ALLOWED, str(error)
        body = gzip.compress(b"\n".join(line for entry in taken for line in entry.lines) + b"\n", 1, mtime=0)
        found, words = await self._ask(session, protocol.write(credentials), credentials, body)
        if found is not Verdict.NO_DATABASE:
            return found, words
        made, words = await self._ask(session, protocol.create_database(credentials), credentials, b"")
        if made is Verdict.WRITTEN and "error" not in words:
            logger.info("made a database in InfluxDB", database=credentials.database)
            return Verdict.NO_DATABASE, ""
        return Verdict.LATER if made is Verdict.LATER else Verdict.NOT_ALLOWED, words

    async def _ask(
        self, session: aiohttp.ClientSession, request: Request, credentials: Credentials, body: bytes
    ) -> tuple[Verdict, str]:
        try:
            async with session.post(
                self._url + request.path, params=request.query, headers=request.headers, data=body,
                allow_redirects=False,  # our credentials are for this server only
            ) as response:  # fmt: skip
                said = (await response.content.read(LARGEST_ANSWER)).decode("utf-8", "replace")
                found = protocol.verdict(response.status, said, is_v2=credentials.is_v2)
        except (aiohttp.ClientError, OSError, TimeoutError, UnicodeError) as error:  # the last: no name of a host
            return Verdict.LATER, credentials.hidden_in(str(error) or f"no answer within {SECONDS:.0f} s")
        return found, credentials.hidden_in(f"{response.status} {said}")

    def _wrote(self, points: int) -> None:
        self.written += points
        self._retry.reset()
        if self._complaint:
            logger.info("InfluxDB takes points again", waiting=self._buffer.points)
        self._complaint = self._refusal = ""

    def _give_up(self, points: int, words: str) -> None:
        """One log line for all refusals of the same kind, until something is written."""
        refused = protocol.refused(words, points)
        self.failed += refused
        self.written += points - refused
        kind = NUMBERS.sub("", words)
        if kind != self._refusal:
            logger.warn("InfluxDB refuses points, they are given up", points=refused, why=protocol.shortened(words))
        self._refusal = kind

    def _divide(self, taken: list[Entry], words: str) -> None:
        """Smaller requests from now on. A single point that is too large is given up."""
        if len(taken) == 1 and len(taken[0].lines) == 1:
            self._give_up(1, words)
            return
        self._most_bytes = max(sum(entry.size for entry in taken) // 2, 1)
        self._buffer.give_back(taken if len(taken) > 1 else buffer.halves(taken[0]), self._clock())

    def _complain(self, what: str, why: str) -> None:
        """Once, until the reason is another one or it works again."""
        if why != self._complaint:
            logger.warn(what, why=protocol.shortened(why))
        self._complaint = why
