"""Keeps a component's copy of one kind of object up to date: one list, then a watch from there, for ever.

Each component runs one per kind; its `Sink` gets the changes. An outdated copy means that memory is given to two pods.
So the list is a consistent one, an older object never replaces a newer one, and `disconnected_for` says how long
changes may have been missed. Connections are lost all the time, and a list of 50,000 pods is expensive, so after nearly
all failures the watch continues where it stopped.

That is correct only while revisions grow. After etcd was restored from an older copy they do not, and a watch from a
revision that does not exist yet is simply silent. So a watch that continues, or that is silent, is trusted only if the
cluster's revision is not lower than the highest one seen. If it is lower, everything is listed again.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from typing import Generic, Protocol, TypeVar

from gpushare.kube import client, models, stream
from gpushare.kube.errors import ApiError, KubeError, Malformed, Unreachable, WentBack
from gpushare.kube.loop import Backoff
from gpushare.kube.requests import Query
from gpushare.kube.resources import Resource
from gpushare.kube.stream import Object
from gpushare.obs import log

T = TypeVar("T", bound=Object)
T_contra = TypeVar("T_contra", bound=Object, contravariant=True)

LONGEST_RETRY_AFTER = 60.0  # seconds; we wait no longer, even if the API server asks for more
WATCH_SECONDS = 300, 600  # chosen by chance, so that not all watches of a cluster end together
SHORT = 1.0  # seconds; a watch that ends sooner and brought nothing new counts as a failure
QUIET_AFTER = 60.0  # seconds; after such a long watch the delays begin small again
PAGE, SHORTEST_PAGE = 500, 10  # objects
TURN = 200  # objects handled before other tasks may run
REMEMBERED = 4096  # deleted objects
MISSING_DELAY = 60.0  # seconds, until a kind is asked for again that the API server does not have, or not for us

logger = log.get(__name__)


class Sink(Protocol[T_contra]):
    """Gets the changes. None of these methods may block or raise."""

    def upsert(self, item: T_contra) -> None:
        """This is how the object is now."""

    def remove(self, item: T_contra) -> None:
        """It is gone; `item` is its last state."""

    def relisted(self, kept: Set[str]) -> None:
        """A list is complete. Exactly these keys exist: forget all others. The last state shown of each key since the
        call before is its state, whatever was known: etcd may have been restored from an older copy."""


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
        optional: bool = False,
        page: int = PAGE,
        silence: float = client.SILENCE,
        patience: float = client.PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`optional`: nobody waits for this kind, which a cluster may lack. A failure is then logged once until it is
        over, and a kind that is missing or forbidden is asked for once a minute."""
        self.lists = 0
        self.watches = 0
        self.malformed = 0
        self.failure: KubeError | None = None  # of the last request; None if it succeeded
        self._api = api
        self._resource, self._namespace, self._query = resource, namespace, query
        self._path = resource.collection(namespace)
        self._kind = kind
        self._sink = sink
        self._key = key
        self._optional = optional
        self._silence = silence
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._retry = Backoff(chance=chance)
        self._relist = Backoff(chance=chance)
        self._resume = ""  # where to watch from; empty: list first
        self._limit = self._page = page
        self._floor = 0  # the revision of the last list
        self._newest = 0  # the highest revision seen
        self._just_listed = False
        self._applied: dict[str, int] = {}
        self._deleted: dict[str, int] = {}
        self._synced = asyncio.Event()
        self._heard = clock()
        self._lost: float | None = self._heard

    @property
    def synced(self) -> bool:
        """Whether there is a complete list that is still valid."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    @property
    def current(self) -> bool:
        """Whether the list is complete, and every change is seen at this moment."""
        return self._lost is None and self._synced.is_set()

    def age(self) -> float:
        """Seconds since the API server last sent anything, or since the start."""
        return self._clock() - self._heard

    def disconnected_for(self) -> float:
        """For how many seconds changes may have been missed; 0.0 while a watch is open."""
        return 0.0 if self._lost is None else self._clock() - self._lost

    async def run(self) -> None:
        while True:
            try:
                if not self._resume:
                    await self._list()
                await self._watch()
            except KubeError as error:
                await self._retry_later(error)

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
                listed[self._known_by(item)] = models.number(item.metadata.resource_version)
                self._sink.upsert(item)
                if count % TURN == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        # From now on only changes newer than this list count, even if revisions are lower after a restore.
        self._applied, self._deleted = listed, {}
        self._floor, self._resume = models.number(version), version
        self._newest, self._just_listed = self._floor, True
        self._limit = self._page
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
        """Until the watch ends, or has been silent for so long that it may be dead although the API server answers."""
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
            except ApiError as error:  # it is too busy, but it answers
                logger.debug("cannot read the revision", path=self._path, why=str(error))
            except KubeError:
                self._lost = last  # the watch may have been dead since then
                raise
            if self._clock() - last >= self._patience:
                return

    async def _compare(self) -> None:
        """Raises WentBack if the cluster's revision is lower than one that was seen."""
        number = models.number(await self._api.revision(self._resource, self._namespace))
        self._heard = self._clock()
        if 0 < number < self._newest:
            error = WentBack(self._newest, number)
            self._forget_list()
            raise error
        self._newest = max(self._newest, number)

    def _forget_list(self) -> None:
        """The copy is not valid until there is a new list."""
        self._resume = ""
        self._synced.clear()

    def _apply(self, event: stream.WatchEvent[T]) -> None:
        number = models.number(event.resource_version)
        self._newest = max(self._newest, number)
        if event.resource_version and (not number or number >= models.number(self._resume)):
            self._resume = event.resource_version
        item = event.object
        if item is None:
            return
        key = self._known_by(item)
        known = self._applied.get(key)
        if event.type == stream.DELETED:
            if 0 < number < (known or 0):
                return  # an older object with the same key
            self._remember_deleted(key, number)
            if self._applied.pop(key, None) is not None:
                self._sink.remove(item)
        elif event.type in (stream.ADDED, stream.MODIFIED):
            newest = max(known or 0, self._deleted.get(key, 0), self._floor)
            if not 0 < number <= newest:  # a proxy may repeat or delay events
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

    async def _retry_later(self, error: KubeError) -> None:
        first, self.failure, self._just_listed = self.failure is None, error, False
        if isinstance(error, Malformed):
            self.malformed += 1
        if not self._resume and isinstance(error, Unreachable):
            self._limit = max(self._limit // 4, SHORTEST_PAGE)  # a page of large objects may not arrive in time
        if _needs_list(error):
            self._forget_list()
            delay = self._relist.delay()
        else:
            delay = self._retry.delay()
        if isinstance(error, ApiError) and error.retry_after:
            delay = max(delay, min(error.retry_after, LONGEST_RETRY_AFTER))
        if self._optional and isinstance(error, ApiError) and error.status in (403, 404):
            delay = MISSING_DELAY
        then = "watch" if self._resume else "list"
        if first or not self._optional:
            logger.warn(
                "list or watch failed, trying again",
                path=self._path, why=str(error), then=then, after_seconds=round(delay, 2),
            )  # fmt: skip
        await self._sleep(delay)


def _needs_list(error: Exception) -> bool:
    """Whether the watch cannot continue where it stopped."""
    match error:
        case ApiError(status=410) | Malformed():
            return True
        case ApiError(status=504, message=message):  # after a restore our revision may be higher than the API server's
            return "Too large resource version" in message
    return False
