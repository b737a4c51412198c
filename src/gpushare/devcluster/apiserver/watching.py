"""WATCH: the history of a resource from one revision on, as lines of JSON, until one side hangs up.

A watch is a position in the store's history, not a queue, so a thousand watchers cost a thousand numbers. A watcher
that is too slow for the bounded history gets 410, as in a real cluster. With a selector an object is ADDED when it
starts to match and DELETED when it stops.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from typing import Final

import msgspec

from gpushare.devcluster.apiserver import listing, status
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.store import ADDED, DELETED, MODIFIED, Change, Entry, Store

TOO_OLD: Final = "too old resource version: {asked} ({oldest})"
BATCH: Final = 100


class Hub:
    """Lets watchers sleep until their resource changes; closing it ends them all."""

    def __init__(self) -> None:
        self.closed = False
        self._sleepers: dict[str, set[asyncio.Future[None]]] = {}

    def wake(self, resource: str) -> None:
        for sleeper in self._sleepers.pop(resource, ()):
            if not sleeper.done():
                sleeper.set_result(None)

    async def sleep(self, resources: Collection[str], seconds: float | None = None) -> None:
        """Until one of the resources changes, at most so many seconds."""
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for resource in resources:
            self._sleepers.setdefault(resource, set()).add(sleeper)
        try:
            async with asyncio.timeout(seconds):
                await sleeper
        except TimeoutError:
            pass
        finally:
            for resource in resources:
                self._sleepers.get(resource, set()).discard(sleeper)

    def close(self) -> None:
        self.closed = True
        for resource in list(self._sleepers):
            self.wake(resource)


class Watch:
    """One watch. Making it raises 410 if the revision is too old. `lines()` is what is sent.

    `show` makes from the stored bytes what is sent: the whole object, or a row of a table.
    """

    def __init__(
        self,
        store: Store,
        hub: Hub,
        kind: Kind,
        namespace: str,
        query: listing.Query,
        show: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._store, self._hub, self._kind, self._query = store, hub, kind, query
        self._show = show or self._whole
        self._prefix = f"{namespace}/" if namespace else ""
        self._initial: list[Entry] = []
        self._since = query.revision or 0
        if not query.revision:
            snapshot, self._initial, _ = listing.select(store, kind, namespace, query)
            self._since = snapshot.revision
        cursor = store.cursor(kind.resource, self._since)
        if cursor is None:
            raise status.expired(TOO_OLD.format(asked=self._since, oldest=store.shelf(kind.resource).floor))
        self._cursor = cursor

    async def lines(self, seconds: float, bookmark_seconds: float | None) -> AsyncGenerator[bytes, None]:
        """Batches of whole lines; ends after `seconds`, or with an ERROR line if the history was lost."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        bookmark_at = clock() + bookmark_seconds if bookmark_seconds else end
        for start in range(0, len(self._initial), BATCH):
            yield b"".join(self._line(ADDED, entry.data) for entry in self._initial[start : start + BATCH])
        self._initial = []
        while not self._hub.closed:
            changes = self._store.changes_from(self._kind.resource, self._cursor, BATCH)
            if changes is None:
                yield error_line(status.expired(TOO_OLD.format(asked=self._since, oldest=self._store.revision)))
                return
            self._cursor += len(changes)
            if lines := b"".join(line for change in changes for line in self._lines_of(change)):
                yield lines
            if clock() >= end:
                return
            if changes:
                continue
            if bookmark_seconds and clock() >= bookmark_at:
                bookmark_at = clock() + bookmark_seconds
                yield self._bookmark()
            await self._hub.sleep([self._kind.resource], max(0.0, min(end, bookmark_at) - clock()))

    def _lines_of(self, change: Change) -> Iterator[bytes]:
        """What this watcher gets of a change: nothing, or one line."""
        if change.revision <= self._since:
            return
        before, after = self._matches(change.before), self._matches(change.after)
        if after and change.after is not None:
            yield self._line(MODIFIED if before else ADDED, change.after.data)
        elif before:
            yield self._line(DELETED, change.gone())

    def _matches(self, entry: Entry | None) -> bool:
        return (
            entry is not None and entry.key.startswith(self._prefix) and self._query.match(entry.labels, entry.fields)
        )

    def _line(self, type_: str, data: bytes) -> bytes:
        return b"".join((b'{"type":"', type_.encode(), b'","object":', self._show(data), b"}\n"))

    def _whole(self, data: bytes) -> bytes:
        return self._kind.head + data[1:]

    def _bookmark(self) -> bytes:
        """Everything up to the store's revision has been sent, so the client may go on from there."""
        self._since = self._store.revision
        bookmark = {"metadata": {"resourceVersion": str(self._since)}, **self._kind.bookmark}
        return self._line("BOOKMARK", msgspec.json.encode(bookmark))


def error_line(error: status.ApiError) -> bytes:
    """A failure inside a stream whose headers are already sent."""
    return msgspec.json.encode({"type": "ERROR", "object": error.body}) + b"\n"
