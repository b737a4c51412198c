"""Keeps somebody's picture of one kind of object true: a list, then a watch from there, for ever.

One per kind runs in a component; the `Sink` is that component's side of it. A picture that is behind means memory
given out twice, so the list is a consistent one, nothing older ever replaces something newer, and `disconnected_for`
says since when the picture may be wrong. Connections are lost all the time and a list of 50,000 pods is expensive for
everybody, so after nearly all failures the watch goes on from where it stopped.

That needs a history that only goes on. After etcd was put back to an older copy it is another one, and a watch from a
revision that is still to come is simply silent. So a watch that goes on from before, and one that is silent, is
believed only as long as the cluster's revision is not lower than what was seen: else everything is listed anew.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from typing import Generic, Protocol, TypeVar

from gpushare.kube import client, stream
from gpushare.kube.errors import ApiError, KubeError, Malformed, Unreachable, WentBack
from gpushare.kube.loop import Backoff
from gpushare.kube.requests import Query
from gpushare.kube.resources import Resource
from gpushare.kube.stream import Object

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)

LONGEST_WISH = 60.0  # seconds; an API server may ask for more in Retry-After, and does not get it
WATCH_SECONDS = 300, 600  # spread, so that not all watches of a cluster end together
SHORT = 1.0  # seconds; a watch that ends sooner and brought nothing new was no watch
QUIET_AFTER = 60.0  # seconds; a failure after that is not one of a series
PAGE, SHORTEST_PAGE = 500, 10  # objects
TURN = 200  # objects handled before others have their turn
REMEMBERED = 4096  # deleted objects

log = logging.getLogger(__name__)


class Sink(Protocol[T_contra]):
    """Who wants to know. None of these may block or raise."""

    def upsert(self, item: T_contra) -> None:
        """This is how the object is now."""

    def remove(self, item: T_contra) -> None:
        """It is gone; `item` is its last state."""

    def relisted(self, kept: Set[str]) -> None:
        """A list is complete. These keys, and no others, exist: forget the rest. What each of them was shown as since
        the call before is how it is, whatever was known: history may have been put back."""


class Reflector(Generic[T]):
    def __init__(
        self,
        api: client.Api,
        resource: Resource,
        kind: type[T],
        sink: Sink[T],
        *,
        key: Callable[[T], str],
        namespace: str = "",
        query: Query | None = None,
        silence: float = client.SILENCE,
        patience: float = client.PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.lists = 0
        self.watches = 0
        self.malformed = 0
        self.failure: KubeError | None = None  # of the last request; None while all is well
        self._api = api
        self._resource, self._namespace, self._query = resource, namespace, query
        self._path = resource.collection(namespace)
        self._kind = kind
        self._sink = sink
        self._key = key
        self._silence = silence
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._retry = Backoff(chance=chance)
        self._relist = Backoff(chance=chance)
        self._resume = ""  # where to watch from; empty: list first
        self._limit = PAGE
        self._floor = 0  # what the last list included
        self._newest = 0  # the highest revision that anything has told
        self._just_listed = False
        self._applied: dict[str, int] = {}
        self._deleted: dict[str, int] = {}
        self._synced = asyncio.Event()
        self._heard = clock()
        self._lost: float | None = self._heard

    @property
    def synced(self) -> bool:
        """Has there been a complete list, and is it still worth something?"""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def age(self) -> float:
        """Seconds since the API server last told us anything; before that, since we are."""
        return self._clock() - self._heard

    def disconnected_for(self) -> float:
        """Seconds since when changes may have been missed; 0.0 while a watch is open."""
        return 0.0 if self._lost is None else self._clock() - self._lost

    async def run(self) -> None:
        while True:
            try:
                if not self._resume:
                    await self._list()
                await self._watch()
            except KubeError as error:
                await self._rest(error)

    async def _list(self) -> None:
        self.lists += 1
        listed: dict[str, int] = {}
        version = ""
        pages = self._api.list_pages(
            self._resource, self._kind, namespace=self._namespace, query=self._query, limit=self._limit
        )
        async for items, page_version in pages:
            self._heard, self.failure, version = self._clock(), None, page_version
            for count, item in enumerate(items, 1):
                listed[self._known_by(item)] = _number(item.metadata.resource_version)
                self._sink.upsert(item)
                if count % TURN == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        # From here on only what is newer than this list counts, even if numbers started anew after a restore.
        self._applied, self._deleted = listed, {}
        self._floor, self._resume = _number(version), version
        self._newest, self._just_listed = self._floor, True
        self._limit = PAGE
        self._sink.relisted(listed.keys())
        self._synced.set()

    async def _watch(self) -> None:
        self.watches += 1
        begun, begun_from = self._clock(), self._resume
        shortest, longest = WATCH_SECONDS
        seconds = round(shortest + (longest - shortest) * self._chance())
        async with self._api.watch(
            self._resource, self._kind, self._resume, namespace=self._namespace, query=self._query,
            timeout_seconds=seconds, silence=self._silence,
        ) as events:  # fmt: skip
            try:
                if not self._just_listed:
                    await self._compare()
                self._heard, self._lost, self.failure = self._clock(), None, None
                await self._follow(events)
            finally:
                self._just_listed = False
                if self._lost is None:
                    self._lost = self._clock()
                if self._clock() - begun >= QUIET_AFTER:
                    self._retry.reset()
                    self._relist.reset()
        if self._resume == begun_from and self._clock() - begun < SHORT:
            raise Unreachable("the watch ended at once", sent=True)

    async def _follow(self, events: AsyncIterator[stream.WatchEvent[T]]) -> None:
        """Until the watch ends, or has been silent for so long that it may be dead although the API server is not."""
        last = self._clock()
        async for event in events:
            if event.type != stream.SILENT:
                last = self._heard = self._clock()
                self._retry.reset()
                self._apply(event)
                continue
            try:
                await self._compare()
            except WentBack:
                raise
            except ApiError as error:  # too busy to say, but there
                log.debug("no revision", extra={"fields": {"path": self._path, "why": str(error)}})
            except KubeError:
                self._lost = last  # it may have been dead since then
                raise
            if self._clock() - last >= self._patience:
                return

    async def _compare(self) -> None:
        """Is the history still the one we know?"""
        number = _number(await self._api.revision(self._resource, self._namespace))
        self._heard = self._clock()
        if 0 < number < self._newest:
            error = WentBack(self._newest, number)
            self._begin_anew()
            raise error
        self._newest = max(self._newest, number)

    def _begin_anew(self) -> None:
        """Nothing counts until there is a new list."""
        self._resume = ""
        self._synced.clear()

    def _apply(self, event: stream.WatchEvent[T]) -> None:
        number = _number(event.resource_version)
        self._newest = max(self._newest, number)
        if event.resource_version and (not number or number >= _number(self._resume)):
            self._resume = event.resource_version
        item = event.object
        if item is None:
            return
        key = self._known_by(item)
        known = self._applied.get(key)
        if event.type == stream.DELETED:
            if 0 < number < (known or 0):
                return  # an earlier object of that name
            self._remember_deleted(key, number)
            if self._applied.pop(key, None) is not None:
                self._sink.remove(item)
        elif event.type in (stream.ADDED, stream.MODIFIED):
            newest = max(known or 0, self._deleted.get(key, 0), self._floor)
            if not 0 < number <= newest:  # proxies may repeat and delay
                self._deleted.pop(key, None)
                self._applied[key] = number
                self._sink.upsert(item)

    def _known_by(self, item: T) -> str:
        key = self._key(item)
        if not key:
            raise Malformed(f"{self._path}: an object without a name or uid")
        return key

    def _remember_deleted(self, key: str, number: int) -> None:
        self._deleted[key] = max(number, self._deleted.pop(key, 0))
        if len(self._deleted) > REMEMBERED:
            del self._deleted[next(iter(self._deleted))]

    async def _rest(self, error: KubeError) -> None:
        self.failure, self._just_listed = error, False
        if isinstance(error, Malformed):
            self.malformed += 1
        if not self._resume and isinstance(error, Unreachable):
            self._limit = max(self._limit // 4, SHORTEST_PAGE)  # a page of huge objects may not come in time
        if _needs_list(error):
            self._begin_anew()
            delay = self._relist.delay()
        else:
            delay = self._retry.delay()
        if isinstance(error, ApiError) and error.retry_after:
            delay = max(delay, min(error.retry_after, LONGEST_WISH))
        then = "watch" if self._resume else "list"
        fields = {"path": self._path, "why": str(error), "then": then, "after_seconds": round(delay, 2)}
        log.warning("lost touch with the API server", extra={"fields": fields})
        await self._sleep(delay)


def _needs_list(error: Exception) -> bool:
    """Is there nothing to gain from watching on from where it stopped?"""
    match error:
        case ApiError(status=410) | Malformed():
            return True
        case ApiError(status=504, message=message):  # after a restore we may be ahead of the API server
            return "Too large resource version" in message
    return False


def _number(version: str) -> int:
    """0 if it is not a number: then nothing is known about its age."""
    return int(version) if version.isdecimal() else 0
