"""The API server of a life: objects in memory, revisions, lists, watches, bindings, and faults.

It keeps every object as JSON, like etcd, and can be put back to an older copy: plainly, so that revisions go back, or
moved on and compacted, as etcd's guide for Kubernetes says. `connection` is the extender's side of it.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from gpushare.kube import requests
from gpushare.kube.errors import ApiError, Unreachable

Object = dict[str, Any]
Listener = Callable[[str, str, Object, str], None]  # kind, type, object, who did it

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
BUMP = 1_000_000  # how far a restore by the guide moves revisions on
OTHERS = 10_000  # revisions of some minutes
FAULTS = ("answer lost", "request lost", "not sent", "error 500", "error 403", "slow", "ok")
SLOW_SECONDS = 6.0


class Entry(NamedTuple):
    revision: int
    type: str
    line: bytes
    at: float


class Copy(NamedTuple):
    """What a backup holds."""

    revision: int
    objects: dict[str, dict[str, bytes]]
    history: dict[str, list[Entry]]


class Watch(Protocol):
    """An open watch of the extender's, as far as the server knows it."""

    kind: str

    @property
    def caught_up(self) -> bool: ...
    def wake(self) -> None: ...
    def mark(self) -> None: ...
    def end(self) -> None: ...


class Server:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.revision = 1
        self.restores = 0
        self.compacted = 0
        self.objects: dict[str, dict[str, Object]] = {}
        self.history: dict[str, list[Entry]] = {}
        self.events: list[Object] = []
        self.unheard: set[str] = set()  # uids about which an event was sent while nobody could hear it
        self.faults: deque[str] = deque()  # what becomes of the next bindings, one each
        self.down = False
        self.listeners: list[Listener] = []
        self.lag: dict[str, float] = {}  # by kind: how late its watch is, in seconds
        self.repeats = False  # somebody between us and the extender repeats and delays
        self.streams: list[Watch] = []
        self.binds = 0
        self.on_bind: Callable[[Object, str], None] = lambda pod, node: None

    def kind(self, kind: str) -> dict[str, Object]:
        return self.objects.setdefault(kind, {})

    @property
    def moment(self) -> tuple[int, int]:
        """Changes with everything that happens; revisions alone may come again."""
        return (self.restores, self.revision)

    @property
    def pods(self) -> dict[str, Object]:
        return self.kind("pods")

    @property
    def nodes(self) -> dict[str, Object]:
        return self.kind("nodes")

    def put(self, kind: str, item: Object, by: str = "") -> None:
        meta, kept = item["metadata"], self.kind(kind)
        key = key_of(item)
        self.revision += 1
        meta["resourceVersion"] = str(self.revision)
        if key not in kept:
            at = int(self.clock())
            meta.setdefault("creationTimestamp", f"2026-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z")
        type = MODIFIED if key in kept else ADDED
        kept[key] = item
        self._tell(kind, type, item, by)

    def drop(self, kind: str, key: str) -> None:
        item = self.kind(kind).pop(key, None)
        if item is not None:
            self.revision += 1
            item["metadata"]["resourceVersion"] = str(self.revision)
            self._tell(kind, DELETED, item, "")

    def _tell(self, kind: str, type: str, item: Object, by: str) -> None:
        line = b'{"type":"%s","object":%s}\n' % (type.encode(), msgspec.json.encode(item))
        self.history.setdefault(kind, []).append(Entry(self.revision, type, line, self.clock()))
        for stream in self.streams:
            stream.wake()
        for listener in self.listeners:
            listener(kind, type, item, by)

    # Backups

    def copy(self) -> Copy:
        objects = {kind: {k: msgspec.json.encode(v) for k, v in kept.items()} for kind, kept in self.objects.items()}
        return Copy(self.revision, objects, {kind: list(entries) for kind, entries in self.history.items()})

    def restore(self, copy: Copy, *, bump: bool) -> None:
        """The API server is down afterwards: whoever restores also starts it again."""
        self.cut()
        self.down = True
        self.restores += 1
        self.objects = {kind: {k: json.loads(v) for k, v in kept.items()} for kind, kept in copy.objects.items()}
        if bump:
            self.revision += BUMP
            self.history, self.compacted = {}, self.revision
        else:
            self.revision = copy.revision
            self.history = {kind: list(entries) for kind, entries in copy.history.items()}

    def others_write(self) -> None:
        """The rest of a cluster writes all the time, and bookmarks tell how far it has come."""
        self.revision += OTHERS
        for stream in self.streams:
            stream.mark()

    def compact(self) -> None:
        """What a watch missed up to now it will never learn from a watch."""
        self.compacted = self.revision

    def cut(self, kind: str = "") -> None:
        for stream in [stream for stream in self.streams if not kind or stream.kind == kind]:
            stream.end()

    def set_lag(self, kind: str, seconds: float) -> None:
        self.lag[kind] = seconds
        for stream in self.streams:
            stream.wake()

    def has_told(self, kinds: tuple[str, ...] = ("pods", "nodes", "configmaps")) -> bool:
        """Whether the extender's watches are open and have brought all there is."""
        open_kinds = {stream.kind for stream in self.streams if stream.caught_up}
        return not self.down and open_kinds.issuperset(kinds)

    # Requests

    def list(self, kind: str, params: requests.Query) -> bytes:
        items = list(self.kind(kind).values())
        limit = int(params.get("limit", 0)) or len(items) or 1
        start = int(params.get("continue", 0))
        more = {"continue": str(start + limit)} if start + limit < len(items) else {}
        meta = {"resourceVersion": str(self.revision), **more}
        return msgspec.json.encode({"metadata": meta, "items": items[start : start + limit]})

    async def bind(self, key: str, body: Object) -> None:
        fault = self.faults.popleft() if self.faults else "ok"
        assert fault in FAULTS, f"unknown fault {fault!r}; known are {FAULTS}"
        await asyncio.sleep(SLOW_SECONDS if fault == "slow" else 0)
        if self.down:
            raise Unreachable("the connection broke", sent=True)
        if fault.startswith("error"):
            raise ApiError(int(fault.split()[1]), "Fault", f"the API server says {fault}")
        if fault in ("request lost", "not sent"):
            raise Unreachable("the connection broke", sent=fault == "request lost")
        pod = self._same(key, body["metadata"].get("uid"), 409)
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            raise ApiError(409, "Conflict", f"pod {key} is already assigned to a node, or being deleted")
        node = body["target"]["name"]
        pod["spec"]["nodeName"] = node
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations") or {})
        self.binds += 1
        self.put("pods", pod)
        self.on_bind(pod, node)
        if fault == "answer lost":
            raise Unreachable("the connection broke", sent=True)

    def patch_pod(self, key: str, body: Object) -> bytes:
        pod = self._same(key, body["metadata"].get("uid"), 422)
        annotate(pod, body["metadata"].get("annotations") or {})
        self.put("pods", pod)
        return msgspec.json.encode(pod)

    def _same(self, key: str, uid: str | None, otherwise: int) -> Object:
        pod = self.pods.get(key)
        if pod is None:
            raise ApiError(404, "NotFound", f'pods "{key}" not found')
        if uid and pod["metadata"]["uid"] != uid:
            raise ApiError(otherwise, "Conflict", f'pods "{key}" has another uid')
        return pod


def key_of(item: Object) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def annotate(item: Object, annotations: dict[str, str | None]) -> None:
    """As a merge patch does: null removes."""
    kept = (item["metadata"].get("annotations") or {}) | annotations
    item["metadata"]["annotations"] = {key: value for key, value in kept.items() if value is not None}
