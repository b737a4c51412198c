"""Somebody whom the API server knows: by a token that is shown once, at a login, or that a proxy sends with each one.

Everybody who may list nodes may look. The token is asked about and forgotten; whether its owner may still look is asked
again and again, also while a stream is open.
"""

import base64
import hashlib
import math
import time
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.server import cookies
from gpushare.dashboard.server.access.rights import Rights
from gpushare.dashboard.server.problems import Problem
from gpushare.dashboard.server.sessions import LIFE_SECONDS, Session, Sessions
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.reviewing import bearers, reviews
from gpushare.kube.reviewing.bearers import Bearers, Refused
from gpushare.kube.reviewing.reviews import User
from gpushare.obs import log

AUDIENCE: Final = "gpushare-dashboard"
NO_SESSION: Final = "you are not logged in"
NO_TOKEN: Final = "a token is needed"
HOW: Final = f"kubectl create token ACCOUNT --audience={AUDIENCE}, and paste what it prints"
NOT_ASKED: Final = "the API server could not be asked who you are: {why}"
NOT_ALLOWED: Final = "{user} may not see the GPUs of this cluster"
NOT_ALLOWED_WHY: Final = "the dashboard is for those who may list nodes"
BIND: Final = "kubectl create clusterrolebinding NAME --clusterrole=gpushare-view {subject} (deploy/view-rbac.yaml)"
ENDED: Final = "your right to list nodes has ended"
FORM: Final = "application/x-www-form-urlencoded"

logger = log.get(__name__)


class _Claims(msgspec.Struct):
    exp: float = math.inf


class Reviewed:
    mode: Final = "cluster"

    def __init__(
        self,
        api: Api,
        sessions: Sessions,
        *,
        behind_proxy: bool,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._sessions, self._behind_proxy, self._now = api, sessions, behind_proxy, now
        self._rights = Rights(api, clock)
        self._bearers = Bearers(self._ask, no_token=NO_TOKEN, not_asked=NOT_ASKED, clock=clock)
        # A browser takes a cookie of this name only over HTTPS and for this host alone.
        self._cookie = cookies.Cookie("__Host-gpushare-session", secure=True)

    async def who(self, request: web.BaseRequest) -> Session:
        if self._behind_proxy:
            session = self._shown(await self._bearers.find(request.headers.get("Authorization", "")))
        else:
            found = self._sessions.find(self._cookie.read(request))
            if found is None:
                raise Problem(401, NO_SESSION, "this browser has no session", HOW, login=self.mode)
            session = found
        await self._check(session)
        return session

    async def login(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._behind_proxy or request.method != "POST":
            raise Problem(404, "there is no login here", "the proxy in front of it asks who you are", "./")
        form = (await request.read()).decode("ascii", "replace") if request.content_type == FORM else ""
        token = parse_qs(form).get("token", [""])[0].strip()
        session = self._shown(await self._bearers.of_token(token, request.remote or ""))
        await self._check(session)
        logger.info("logged in", user=self.name(session))
        return self._cookie.given(self._sessions.open(session.user, session.until))

    async def logout(self, request: web.BaseRequest) -> web.StreamResponse:
        session = self._sessions.find(self._cookie.read(request))
        if session is not None:
            self._sessions.end(session, cookies.LOGGED_OUT)
        return self._cookie.taken()

    async def ended(self, session: Session) -> str:
        """Why it must not go on; empty: it may. If nobody knows, because the API server is away for long, it must
        not."""
        if not self._sessions.use(session):
            return session.over
        try:
            await self._check(session)
        except Problem as problem:
            return session.over or problem.error
        return ""

    async def allowed(self, session: Session, namespaces: Iterable[str]) -> Allowed:
        try:
            return await self._rights.allowed(_user(session), namespaces)
        except KubeError as error:
            raise _not_asked(error) from error

    def name(self, session: Session) -> str:
        return _user(session).username

    async def _ask(self, token: str) -> Session | Refused:
        user = await reviews.owner(self._api, token, AUDIENCE)
        if user is None:
            return Refused(401, bearers.BAD_TOKEN)
        until = min(_expiry(token), self._now() + LIFE_SECONDS)
        return Session(hashlib.sha256(msgspec.json.encode(user)).digest(), user, self._now(), until)

    def _shown(self, found: Session | Refused) -> Session:
        """Of somebody who shows a token."""
        if isinstance(found, Refused):
            headers = {"WWW-Authenticate": "Bearer"} if found.status == 401 else {"Retry-After": "5"}
            raise Problem(
                found.status, found.why, "", HOW, login="" if self._behind_proxy else self.mode, headers=headers
            )
        if self._now() >= found.until:
            raise Problem(401, "this token has expired", "", HOW, login="" if self._behind_proxy else self.mode)
        return Session(found.key, found.user, self._now(), found.until)  # what was found is kept for others

    async def _check(self, session: Session) -> None:
        user = _user(session)
        try:
            may = await self._rights.may_look(user)
        except KubeError as error:
            raise _not_asked(error) from error
        if not may:
            self._sessions.end(session, ENDED)
            way = BIND.format(subject=reviews.subject(user))
            raise Problem(403, NOT_ALLOWED.format(user=user.username), NOT_ALLOWED_WHY, way)


def _user(session: Session) -> User:
    assert session.user is not None, "every session here began with a token"
    return session.user


def _not_asked(error: KubeError) -> Problem:
    return Problem(503, NOT_ASKED.format(why=error), "", "try again in a few seconds", headers={"Retry-After": "5"})


def _expiry(token: str) -> float:
    """When the token ends, if it says so. The API server has checked it: what it says is true."""
    parts = token.split(".")
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Claims).exp
    except (IndexError, ValueError, msgspec.MsgspecError):
        return math.inf
