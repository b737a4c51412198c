"""A person at this machine, whose kubeconfig the dashboard reads with: the terminal shows a link that logs in once.

A link that is used, or too old, is worth nothing. Whoever comes with such a one, or with none, makes the terminal show
a new one: so there is always one for another browser, and only for who sees the terminal.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web

from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.server import cookies
from gpushare.dashboard.server.problems import Problem
from gpushare.dashboard.server.sessions import Session, Sessions

LINK_SECONDS: Final = 600.0
NO_SESSION: Final = "you are not logged in"
USED: Final = "this link does not work: it was used already, or is older than 10 minutes, or is not complete"
TERMINAL: Final = "open the newest link in the terminal where gpushare dashboard runs"


class Local:
    mode: Final = "local"

    def __init__(
        self,
        port: int,
        user: str,
        show: Callable[[str], None],
        sessions: Sessions,
        now: Callable[[], float] = time.time,
        host: str = "127.0.0.1",
    ) -> None:
        """`show`: shows a link in the terminal. `host`: where it listens, as it stands in a URL."""
        self._base, self._user, self._show, self._sessions, self._now = f"{host}:{port}", user, show, sessions, now
        self._cookie = cookies.Cookie(f"gpushare-session-{port}", secure=False)
        self._token, self._until = "", 0.0

    def invite(self) -> None:
        """Shows a link, unless the one that was shown last still works."""
        if self._token and self._now() < self._until:
            return
        self._token, self._until = secrets.token_urlsafe(32), self._now() + LINK_SECONDS
        self._show(f"http://{self._base}/login?token={self._token}")

    async def who(self, request: web.BaseRequest) -> Session:
        session = self._sessions.find(self._cookie.read(request))
        if session is None:
            self.invite()
            raise Problem(401, NO_SESSION, "this browser has no session", TERMINAL, login=self.mode)
        return session

    async def login(self, request: web.BaseRequest) -> web.StreamResponse:
        token = request.query.get("token", "")
        good = bool(self._token) and self._now() < self._until
        if request.method != "GET" or not good or not hmac.compare_digest(token.encode(), self._token.encode()):
            self.invite()
            raise Problem(403, USED, "a link logs in one browser", TERMINAL)
        self._token = ""
        return self._cookie.given(self._sessions.open(None))

    async def logout(self, request: web.BaseRequest) -> web.StreamResponse:
        session = self._sessions.find(self._cookie.read(request))
        if session is not None:
            self._sessions.end(session, cookies.LOGGED_OUT)
        return self._cookie.taken()

    async def ended(self, session: Session) -> str:
        """Why it must not go on; empty: it may."""
        return "" if self._sessions.use(session) else session.over

    async def allowed(self, session: Session, namespaces: Iterable[str]) -> Allowed:
        """Everything: it is read with this person's own rights."""
        return None

    def name(self, session: Session) -> str:
        return self._user
