"""Who is logged in: opaque ids in a cookie, of which only hashes are kept here.

An id is made at each login and never taken from a request, so nobody can prepare one for somebody else. No token is
kept: what a session has of its owner is the name and what the API server needs to say what that one may do.
"""

import hashlib
import math
import secrets
import time
from collections.abc import Callable
from typing import Final

from gpushare.kube.reviewing.bearers import put
from gpushare.kube.reviewing.reviews import User

IDLE_SECONDS: Final = 12 * 3600.0
LIFE_SECONDS: Final = 12 * 3600.0  # at most, of a session that began with a token
MOST: Final = 1000
ID_BYTES: Final = 32
OVER: Final = "the session is over: log in again"


class Session:
    """`user` None: the person at this machine. `until`: when it ends, however much it is used."""

    __slots__ = ("key", "over", "until", "used", "user")

    def __init__(self, key: bytes, user: User | None, now: float, until: float = math.inf) -> None:
        self.key, self.user, self.used, self.until = key, user, now, until
        self.over = ""  # why it has ended; empty: it has not


class Sessions:
    """`now`: seconds since 1970, because a machine that sleeps does not stop them."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._by_key: dict[bytes, Session] = {}

    def open(self, user: User | None, until: float = math.inf) -> str:
        """The id of a new session, for its cookie."""
        made = secrets.token_urlsafe(ID_BYTES)
        key = _key(made)
        put(self._by_key, key, Session(key, user, self._now(), until), MOST)
        return made

    def find(self, id_: str) -> Session | None:
        """None: there is none, or it is over."""
        session = self._by_key.get(_key(id_)) if id_ else None
        return session if session is not None and self.use(session) else None

    def use(self, session: Session) -> bool:
        """Whether it is still good, by the clock. If so it is used: also by a stream that is open."""
        now = self._now()
        if not session.over and (now >= session.until or now - session.used >= IDLE_SECONDS):
            self.end(session, OVER)
        session.used = now
        return not session.over

    def end(self, session: Session, why: str) -> None:
        session.over = why
        self._by_key.pop(session.key, None)


def _key(id_: str) -> bytes:
    """A dictionary finds a hash in a time that tells nothing about the id."""
    return hashlib.sha256(id_.encode("utf-8", "surrogateescape")).digest()
