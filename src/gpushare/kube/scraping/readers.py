"""Who may read the metrics page: the API server is asked whose a token is, and whether that one may read /metrics.

Answers are kept for a short time, by the hash of the token: a scrape every few seconds then costs the API server two
requests a minute, and a right that is taken away ends within that time.
"""

import asyncio
import hashlib
import shlex
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from gpushare.kube import requests, resources
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError

GOOD_SECONDS: Final = 60.0
BAD_SECONDS: Final = 5.0
MOST_KEPT: Final = 256  # answers
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
TOO_MANY: Final = "too many tokens are being checked"

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
        self._known: dict[bytes, tuple[Verdict, float]] = {}  # until when
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def verdict(self, authorization: str) -> Verdict:
        """`authorization`: the header of that name."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > LONGEST:
            return Verdict(401, NO_TOKEN)
        key = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        known = self._known.get(key)
        if known is not None and self._clock() < known[1]:
            return known[0]
        if self._waiting >= MOST_WAITING:
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

    def _keep(self, key: bytes, verdict: Verdict) -> None:
        self._known.pop(key, None)
        while len(self._known) >= MOST_KEPT:
            del self._known[next(iter(self._known))]  # the oldest
        self._known[key] = verdict, self._clock() + (GOOD_SECONDS if verdict.status == 200 else BAD_SECONDS)


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
