"""Objects, resource versions and history: what etcd and the watch cache are to a real API server.

Pure storage: no HTTP, no clock, no rules about kinds. Every write gets the next revision of one counter, as in etcd. An
object is kept as the bytes that are sent, so a list is a join of bytes and 50,000 pods cost what their JSON costs. The
history of each resource and the number of snapshots are limited.
"""

import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from gpushare.devcluster.apiserver import status
from gpushare.devcluster.apiserver.status import Object

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(type=Object).decode


class Entry:
    """One version of one object. Never changed."""

    __slots__ = ("data", "fields", "key", "labels", "revision", "uid")

    def __init__(self, key: str, obj: Object, revision: int, fields: Mapping[str, str]) -> None:
        self.key = key
        self.revision = revision
        self.data = _encode(obj)
        self.uid: str = obj["metadata"]["uid"]
        self.labels: dict[str, str] = obj["metadata"].get("labels") or {}
        self.fields = fields

    def obj(self) -> Object:
        """A copy that may be changed."""
        return _decode(self.data)


class Change:
    """One step of the history."""

    __slots__ = ("_gone", "after", "before", "revision")

    def __init__(self, revision: int, before: Entry | None, after: Entry | None) -> None:
        self.revision = revision
        self.before = before
        self.after = after
        self._gone: bytes | None = None

    def gone(self) -> bytes:
        """The last version of the object with the revision of this change: what DELETED shows, as in a real server."""
        if self._gone is None:
            assert self.before is not None, "only an object that was there can be deleted"
            obj = self.before.obj()
            obj["metadata"]["resourceVersion"] = str(self.revision)
            self._gone = _encode(obj)
        return self._gone


class Snapshot:
    """All entries of one resource at one revision, in key order. All pages of a list come from one snapshot."""

    __slots__ = ("entries", "revision")

    def __init__(self, revision: int, entries: list[Entry]) -> None:
        self.revision = revision
        self.entries = entries

    def span(self, namespace: str, after: str = "") -> range:
        """The positions of a namespace ("" for all) whose keys come after `after`."""
        low = bisect.bisect_left(self.entries, f"{namespace}/" if namespace else "", key=_key)
        high = bisect.bisect_left(self.entries, f"{namespace}0", key=_key) if namespace else len(self.entries)
        if after:
            low = max(low, bisect.bisect_right(self.entries, after, key=_key))
        return range(low, high)

    def find(self, key: str) -> Entry | None:
        at = bisect.bisect_left(self.entries, key, key=_key)
        return self.entries[at] if at < len(self.entries) and self.entries[at].key == key else None


def _key(entry: Entry) -> str:
    return entry.key


class Shelf:
    """One resource: its objects by key, and the changes that led here."""

    def __init__(self, floor: int) -> None:
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []
        self.changes: list[Change] = []
        self.first = 0  # number of the first change that is kept; numbers never repeat
        self.floor = floor  # a watch from a revision below this has missed something

    @property
    def end(self) -> int:
        return self.first + len(self.changes)


class Store:
    """`fields(resource, obj)`: the values for field selectors. `changed(resource)` is called after a write."""

    def __init__(
        self,
        fields: Callable[[str, Object], Mapping[str, str]] = lambda resource, obj: {},
        *,
        history: int = 20_000,
        snapshots: int = 32,
    ) -> None:
        self.revision = 1
        self.changed: Callable[[str], None] = lambda resource: None
        self._fields = fields
        self._history = history
        self._snapshot_limit = snapshots
        self._floor = 0
        self._shelves: dict[str, Shelf] = {}
        self._frozen: dict[str, Snapshot] = {}
        self._snapshots: OrderedDict[tuple[str, int], Snapshot] = OrderedDict()

    def shelf(self, resource: str) -> Shelf:
        return self._shelves.get(resource) or self._shelves.setdefault(resource, Shelf(self._floor))

    def get(self, resource: str, key: str) -> Entry | None:
        return self.shelf(resource).entries.get(key)

    def create(self, resource: str, key: str, obj: Object) -> Entry:
        self.check_new(resource, key, obj)
        return self._write(resource, key, obj)

    def check_new(self, resource: str, key: str, obj: Object) -> None:
        if key in self.shelf(resource).entries:
            raise status.already_exists(resource, obj["metadata"]["name"])

    def update(self, resource: str, key: str, obj: Object) -> Entry:
        """Replaces the current version. If nothing changes there is no new version.

        An object with a resourceVersion replaces only exactly that version.
        """
        before = self.shelf(resource).entries.get(key)
        name = obj["metadata"]["name"]
        if before is None:
            raise status.not_found(resource, name)
        wanted = obj["metadata"].get("resourceVersion")
        if wanted and wanted != str(before.revision):
            raise status.conflict(resource, name, status.MODIFIED)
        obj["metadata"]["resourceVersion"] = str(before.revision)
        if obj == before.obj():
            return before
        return self._write(resource, key, obj)

    def delete(self, resource: str, key: str) -> Change:
        shelf = self.shelf(resource)
        before = shelf.entries.pop(key)
        shelf.keys.pop(bisect.bisect_left(shelf.keys, key))
        self.revision += 1
        return self._record(resource, Change(self.revision, before, None))

    def _write(self, resource: str, key: str, obj: Object) -> Entry:
        shelf = self.shelf(resource)
        before = shelf.entries.get(key)
        if before is None:
            bisect.insort(shelf.keys, key)
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        entry = shelf.entries[key] = Entry(key, obj, self.revision, self._fields(resource, obj))
        self._record(resource, Change(self.revision, before, entry))
        return entry

    def _record(self, resource: str, change: Change) -> Change:
        shelf = self.shelf(resource)
        shelf.changes.append(change)
        if len(shelf.changes) > self._history:
            drop = self._history // 4 + 1  # many at once, so that the list is not moved at every write
            shelf.floor = shelf.changes[drop - 1].revision
            shelf.first += drop
            del shelf.changes[:drop]
        self.changed(resource)
        return change

    def snapshot(self, resource: str, revision: int | None = None) -> Snapshot:
        """The resource now, or at a revision of which a list keeps the snapshot."""
        if revision is not None and revision != self.revision:
            kept = self._snapshots.get((resource, revision))
            if kept is None:
                raise status.expired(status.LIST_EXPIRED)
            self._snapshots.move_to_end((resource, revision))
            return kept
        kept = self._snapshots.get((resource, self.revision))
        if kept is None:
            shelf = self.shelf(resource)
            kept = Snapshot(self.revision, [shelf.entries[key] for key in shelf.keys])
        return kept

    def keep(self, resource: str, snapshot: Snapshot) -> None:
        """Keeps a snapshot for the next pages; the oldest ones are dropped."""
        self._snapshots[(resource, snapshot.revision)] = snapshot
        while len(self._snapshots) > self._snapshot_limit:
            self._snapshots.popitem(last=False)

    def cursor(self, resource: str, revision: int) -> int | None:
        """The number of the first change after a revision; None if some of them are no longer kept."""
        shelf = self.shelf(resource)
        if revision < shelf.floor:
            return None
        return shelf.first + bisect.bisect_right(shelf.changes, revision, key=lambda change: change.revision)

    def changes_from(self, resource: str, cursor: int, limit: int) -> list[Change] | None:
        """At most `limit` changes from that number on; None if they are no longer kept."""
        shelf = self.shelf(resource)
        if cursor < shelf.first:
            return None
        return shelf.changes[cursor - shelf.first : cursor - shelf.first + limit]

    def freeze(self) -> None:
        """For tests: from now on a read "from the cache" (resourceVersion=0) sees the store as it is now."""
        self._frozen = {resource: self.snapshot(resource) for resource in self._shelves}

    def thaw(self) -> None:
        self._frozen = {}

    def cached(self, resource: str) -> Snapshot:
        """What a read from the cache gets: the newest state, unless a test froze it."""
        return self._frozen.get(resource) or self.snapshot(resource)

    def expire_continues(self) -> None:
        """For tests: every `continue` token so far is too old."""
        self._snapshots.clear()

    def expire_history(self) -> None:
        """For tests: every revision so far is too old to watch from, and every open watch has missed changes."""
        self.revision += 1
        self._floor = self.revision
        self.expire_continues()
        for resource, shelf in self._shelves.items():
            shelf.first = shelf.end + 1  # one number is skipped, so that a watch that is up to date notices too
            shelf.changes.clear()
            shelf.floor = self.revision
            self.changed(resource)

    def load(self, objects: Iterable[tuple[str, str, Object]]) -> int:
        """Stores many (resource, key, object), as a restored backup does: open watches must start again."""
        count = 0
        for resource, key, obj in objects:
            count += 1
            self.revision += 1
            obj["metadata"]["resourceVersion"] = str(self.revision)
            self.shelf(resource).entries[key] = Entry(key, obj, self.revision, self._fields(resource, obj))
        for shelf in self._shelves.values():
            shelf.keys = sorted(shelf.entries)
        self.expire_history()
        return count
