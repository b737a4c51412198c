"""Who may read the metrics page: the API server is asked whose a token is, and whether that one may read /metrics.

Answers are kept for a short time, by the hash of the token: a scrape every few seconds then costs the API server two
requests a minute, and a right that is taken away ends within that time.
"""

import asyncio
import hashlib
import math
import shlex
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError

GOOD_SECONDS: Final = 60.0
BAD_SECONDS: Final = 5.0
MOST_KEPT: Final = 256  # good answers, and as many bad ones
EVERY_SECONDS, AT_FIRST = 1.0, 10  # questions about new tokens of one address: how often, and how many at once
MOST_ADDRESSES: Final = 1024
AT_ONCE: Final = 4  # questions to the API server, so that invented tokens cannot keep it busy
MOST_WAITING: Final = 64
LONGEST: Final = 1 << 16  # characters of a token

NO_TOKEN: Final = "these metrics need a bearer token: Authorization: Bearer TOKEN"
BAD_TOKEN: Final = "the API server does not know this token"
NOT_ALLOWED: Final = (
    "{user} may not read /metrics: bind the ClusterRole gpushare-metrics to it, such as: kubectl create "
    "clusterrolebinding NAME --clusterrole=gpushare-metrics {subject}"
)
NOT_ASKED: Final = "the API server could not be asked whether this token may read /metrics: {why}"
TOO_MANY: Final = "too many tokens are being checked, try again in a few seconds"

K = TypeVar("K")
V = TypeVar("V")
_PREFIX: Final = "system:serviceaccount:"


class Verdict(NamedTuple):
    """`status`: 200, or the one to answer with."""

    status: int
    why: str = ""


class _User(msgspec.Struct):
    username: str = ""
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus | None = None


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus | None = None


class Readers:
    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        # Until when. A good one stays when its time is over: that token may be asked about at any time.
        self._good: dict[bytes, tuple[Verdict, float]] = {}
        self._bad: dict[bytes, tuple[Verdict, float]] = {}
        self._turns: dict[str, float] = {}  # by address
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def verdict(self, authorization: str, address: str = "") -> Verdict:
        """`authorization`: the header of that name. `address`: who asks."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii() or len(token) > LONGEST:
            return Verdict(401, NO_TOKEN)
        key = hashlib.sha256(token.encode()).digest()
        known = self._good.get(key) or self._bad.get(key)
        if known is not None and self._clock() < known[1]:
            return known[0]
        # Whoever invents tokens keeps neither the API server busy nor those out whose tokens were good.
        if key not in self._good and (self._waiting >= MOST_WAITING or not self._its_turn(address)):
            return Verdict(503, TOO_MANY)
        self._waiting += 1
        try:
            async with self._asking:
                verdict = await self._ask(token)
        except KubeError as error:
            return Verdict(503, NOT_ASKED.format(why=error))  # not kept: the next question may be answered
        finally:
            self._waiting -= 1
        self._keep(key, verdict)
        return verdict

    async def _ask(self, token: str) -> Verdict:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        review = await self._api.fetch(requests.create(resources.TOKEN_REVIEWS, "", body), _TokenReview)
        status = review.status or _TokenStatus()
        if not status.authenticated or status.user is None:
            return Verdict(401, BAD_TOKEN)
        asked = requests.create(resources.ACCESS_REVIEWS, "", _access(status.user))
        access = (await self._api.fetch(asked, _AccessReview)).status or _AccessStatus()
        if access.allowed:
            return Verdict(200)
        return Verdict(403, NOT_ALLOWED.format(user=status.user.username, subject=_subject(status.user.username)))

    def _its_turn(self, address: str) -> bool:
        now = self._clock()
        turn = max(self._turns.pop(address, -math.inf), now - (AT_FIRST - 1) * EVERY_SECONDS)
        _put(self._turns, address, turn + EVERY_SECONDS if turn <= now else turn, MOST_ADDRESSES)
        return turn <= now

    def _keep(self, key: bytes, verdict: Verdict) -> None:
        self._good.pop(key, None)
        self._bad.pop(key, None)
        good = verdict.status == 200
        until = self._clock() + (GOOD_SECONDS if good else BAD_SECONDS)
        _put(self._good if good else self._bad, key, (verdict, until), MOST_KEPT)


def _put(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """The oldest ones are dropped for it."""
    while len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value


def _access(user: _User) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "user": user.username, "groups": user.groups or [], "nonResourceAttributes": {"path": "/metrics", "verb": "get"}
    }  # fmt: skip
    spec |= {"uid": user.uid} if user.uid else {}
    spec |= {"extra": user.extra} if user.extra else {}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def _subject(user: str) -> str:
    """As an option of kubectl."""
    account = user.startswith(_PREFIX)
    return shlex.quote(f"--serviceaccount={user.removeprefix(_PREFIX)}" if account else f"--user={user}")
