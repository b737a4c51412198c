"""What somebody may see, as the API server says: nodes at all, and the pods of which namespaces.

Answers are kept for less than a minute, so a right that is taken away ends within that time, and a page that asks every
few seconds costs hardly a question. If the API server cannot be asked, the last answer holds for some minutes: it is
then not reached for the cluster either, and the page says so.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from gpushare.dashboard.allowed import Allowed
from gpushare.kube.client import Api
from gpushare.kube.errors import KubeError
from gpushare.kube.reviewing import reviews
from gpushare.kube.reviewing.bearers import put
from gpushare.kube.reviewing.reviews import User

KEPT_SECONDS: Final = 45.0  # with the seconds between two looks at a stream, less than a minute
GRACE_SECONDS: Final = 600.0  # if the API server cannot be asked
AT_ONCE: Final = 8  # questions to the API server, of everybody together
MOST_NAMESPACES: Final = 500  # of one answer; the pods of others are shown as those of another team
MOST_KEPT: Final = 20_000

Key = tuple[bytes, str, str]  # who, what, where ("" is everywhere)


class Rights:
    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._kept: dict[Key, tuple[bool, float]] = {}
        self._asked: dict[Key, asyncio.Future[bool]] = {}  # now: many pages of one user ask at the same time
        self._asking = asyncio.Semaphore(AT_ONCE)

    async def may_look(self, user: User) -> bool:
        """Whether this one may see the dashboard at all. KubeError: nobody knows."""
        return await self._may(user, "nodes", "")

    async def allowed(self, user: User, namespaces: Iterable[str]) -> Allowed:
        """Of these namespaces. KubeError: nobody knows."""
        if await self._may(user, "pods", ""):
            return None
        asked = sorted(set(namespaces))[:MOST_NAMESPACES]
        answers = await asyncio.gather(*(self._may(user, "pods", namespace) for namespace in asked))
        return frozenset(namespace for namespace, may in zip(asked, answers, strict=True) if may)

    async def _may(self, user: User, resource: str, namespace: str) -> bool:
        key = msgspec.json.encode(user), resource, namespace
        known = self._kept.get(key)
        if known is not None and self._clock() - known[1] < KEPT_SECONDS:
            return known[0]
        if key not in self._asked:
            self._asked[key] = asyncio.ensure_future(self._ask(user, key))
            self._asked[key].add_done_callback(lambda done: self._done(key, done))
        try:
            # The others who wait for this answer get it, even if this one has gone.
            return await asyncio.shield(self._asked[key])
        except KubeError:
            if known is None or self._clock() - known[1] >= GRACE_SECONDS:
                raise
            return known[0]

    async def _ask(self, user: User, key: Key) -> bool:
        _, resource, namespace = key
        what: dict[str, Any] = {"verb": "list", "resource": resource, "group": ""}
        what |= {"namespace": namespace} if namespace else {}
        async with self._asking:
            may = await reviews.may(self._api, user, {"resourceAttributes": what})
        self._kept.pop(key, None)
        put(self._kept, key, (may, self._clock()), MOST_KEPT)
        return may

    def _done(self, key: Key, done: asyncio.Future[bool]) -> None:
        del self._asked[key]
        if not done.cancelled():
            done.exception()  # seen: whoever waits gets it
