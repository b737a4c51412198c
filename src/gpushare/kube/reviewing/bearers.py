"""What was answered about bearer tokens, kept for a short time by the hash of the token.

Somebody who asks every few seconds then costs the API server two requests a minute, and a right that is taken away ends
within that time.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from gpushare.kube.errors import KubeError

GOOD_SECONDS: Final = 60.0
BAD_SECONDS: Final = 5.0
MOST_KEPT: Final = 256  # good answers, and as many bad ones
EVERY_SECONDS, AT_FIRST = 1.0, 10  # questions about new tokens of one address: how often, and how many at once
MOST_ADDRESSES: Final = 1024
AT_ONCE: Final = 4  # questions to the API server, so that invented tokens cannot keep it busy
MOST_WAITING: Final = 64
LONGEST: Final = 1 << 16  # characters of a token

BAD_TOKEN: Final = "the API server does not know this token"
TOO_MANY: Final = "too many tokens are being checked, try again in a few seconds"

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class Refused(NamedTuple):
    """`status`: the one to answer with."""

    status: int
    why: str


class Bearers(Generic[T]):
    """`ask`: who a token stands for, or why not. `not_asked`: the sentence if the API server does not answer, with a
    place for the reason."""

    def __init__(
        self,
        ask: Callable[[str], Awaitable[T | Refused]],
        *,
        no_token: str,
        not_asked: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._no_token, self._not_asked, self._clock = ask, no_token, not_asked, clock
        # Until when. A good one stays when its time is over: that token may be asked about at any time.
        self._good: dict[bytes, tuple[T, float]] = {}
        self._bad: dict[bytes, tuple[Refused, float]] = {}
        self._turns: dict[str, float] = {}  # by address
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def find(self, authorization: str, address: str = "") -> T | Refused:
        """`authorization`: the header of that name. `address`: who asks."""
        scheme, _, token = authorization.partition(" ")
        return await self.of_token(token.strip() if scheme.lower() == "bearer" else "", address)

    async def of_token(self, token: str, address: str = "") -> T | Refused:
        if not token or not token.isascii() or len(token) > LONGEST:
            return Refused(401, self._no_token)
        key = hashlib.sha256(token.encode()).digest()
        known = self._good.get(key) or self._bad.get(key)
        if known is not None and self._clock() < known[1]:
            return known[0]
        # Whoever invents tokens keeps neither the API server busy nor those out whose tokens were good.
        if key not in self._good and (self._waiting >= MOST_WAITING or not self._its_turn(address)):
            return Refused(503, TOO_MANY)
        self._waiting += 1
        try:
            async with self._asking:
                found = await self._ask(token)
        except KubeError as error:
            return Refused(503, self._not_asked.format(why=error))  # not kept: the next question may be answered
        finally:
            self._waiting -= 1
        self._keep(key, found)
        return found

    def _its_turn(self, address: str) -> bool:
        now = self._clock()
        turn = max(self._turns.pop(address, -math.inf), now - (AT_FIRST - 1) * EVERY_SECONDS)
        put(self._turns, address, turn + EVERY_SECONDS if turn <= now else turn, MOST_ADDRESSES)
        return turn <= now

    def _keep(self, key: bytes, found: T | Refused) -> None:
        self._good.pop(key, None)
        self._bad.pop(key, None)
        if isinstance(found, Refused):
            put(self._bad, key, (found, self._clock() + BAD_SECONDS), MOST_KEPT)
        else:
            put(self._good, key, (found, self._clock() + GOOD_SECONDS), MOST_KEPT)


def put(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """The oldest ones are dropped for it."""
    while len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value
