"""The API server of a life: objects in memory, revisions, lists, watches, bindings, and faults.

It keeps every object as JSON, like etcd, and can be put back to an older copy: plainly, so that revisions go back, or
moved on and compacted, as etcd's guide for Kubernetes says. `Connection` is the extender's side of it: the real client
without its socket, so that the real reflectors list and watch bytes.
"""

import asyncio
import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from gpushare.kube import client
from gpushare.kube.errors import ApiError, Unreachable

Object = dict[str, Any]
Listener = Callable[[str, str, Object, str], None]  # kind, type, object, who did it

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
BOOKMARK_SECONDS = 60.0
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
        self.streams: list[Stream] = []
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

    def list(self, kind: str, params: client.Params) -> bytes:
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


class Stream:
    """One open watch: to the client, a response and its content."""

    def __init__(self, server: Server, kind: str, since: int) -> None:
        self.server, self.kind, self._since = server, kind, since
        self._at = bisect_right(server.history.setdefault(kind, []), since, key=lambda entry: entry.revision)
        self._ended = False
        self._woken: asyncio.Future[None] | None = None
        self._marked = server.clock()
        server.streams.append(self)

    @property
    def content(self) -> "Stream":
        return self

    @property
    def caught_up(self) -> bool:
        return not self._ended and self._at == len(self.server.history[self.kind])

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def mark(self) -> None:
        """A bookmark is due."""
        self._marked = -BOOKMARK_SECONDS
        self.wake()

    def end(self) -> None:
        self._ended = True
        if self in self.server.streams:
            self.server.streams.remove(self)
        self.wake()

    close = end

    async def readany(self) -> bytes:
        while not self._ended:
            lines = self._due()
            if lines:
                return lines
            await self._wait()
        return b""

    def _due(self) -> bytes:
        server, history = self.server, self.server.history[self.kind]
        now, lag, lines = server.clock(), server.lag.get(self.kind, 0.0), []
        while self._at < len(history) and history[self._at].at + lag <= now:
            entry = history[self._at]
            self._at += 1
            if entry.revision > self._since:  # a real API server sends nothing older than what was asked for
                lines += [history[max(0, self._at - 3)].line, entry.line] if server.repeats else []
                lines.append(entry.line)
        if not lines and self.caught_up and now - self._marked >= BOOKMARK_SECONDS and server.revision > self._since:
            self._marked = now
            meta = {"metadata": {"resourceVersion": str(server.revision)}, "spec": {"containers": None}}
            lines.append(msgspec.json.encode({"type": "BOOKMARK", "object": meta}) + b"\n")
        return b"".join(lines)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        history, lag = self.server.history[self.kind], self.server.lag.get(self.kind, 0.0)
        due = self._marked + BOOKMARK_SECONDS
        if self._at < len(history):
            due = min(due, history[self._at].at + lag)
        if due <= loop.time():
            due = loop.time() + BOOKMARK_SECONDS
        self._woken = loop.create_future()
        timer = loop.call_at(due, self.wake)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = None


class Connection(client.Api):
    """The extender's client: every request goes to the server of this life."""

    def __init__(self, server: Server) -> None:  # no session: nothing of the real one
        self._server = server
        self._timeout = client.TIMEOUT
        self._version = (1, 36)
        self.cut_off = False  # a killed process says nothing any more

    async def _request(
        self, method: str, path: str, params: client.Params | None = None, body: object = None, content_type: str = ""
    ) -> bytes:
        await asyncio.sleep(0)
        server, words = self._server, path.strip("/").split("/")
        given: Object = msgspec.json.decode(msgspec.json.encode(body)) if body is not None else {}
        if words[-1] == "events" and server.down:
            server.unheard.add(given["involvedObject"].get("uid", ""))
        self._reachable()
        match method, words:
            case "GET", ["api", "v1", kind] | ["api", "v1", "namespaces", _, kind]:
                return server.list(kind, params or {})
            case "GET", ["api", "v1", "namespaces", namespace, kind, name]:
                return self._found(kind, f"{namespace}/{name}")
            case "POST", ["api", "v1", "namespaces", namespace, "pods", name, "binding"]:
                await server.bind(f"{namespace}/{name}", given)
                return b"{}"
            case "PATCH", ["api", "v1", "namespaces", namespace, "pods", name]:
                return server.patch_pod(f"{namespace}/{name}", given)
            case "POST", ["api", "v1", "namespaces", _, "events"]:
                server.events.append(given)
                return b"{}"
        raise ApiError(404, "NotFound", f"{method} {path}")

    async def _open(
        self,
        method: str,
        path: str,
        params: client.Params | None,
        data: bytes | None = None,
        content_type: str = "",
        endless: bool = False,
    ) -> Any:
        await asyncio.sleep(0)
        self._reachable()
        since = int((params or {})["resourceVersion"])
        if since < self._server.compacted:
            raise ApiError(410, "Expired", f"too old resource version: {since}")
        return Stream(self._server, path.rpartition("/")[2], since)

    def _reachable(self) -> None:
        if self._server.down or self.cut_off:
            raise Unreachable("connection refused", sent=False)

    def _found(self, kind: str, key: str) -> bytes:
        found = self._server.kind(kind).get(key)
        if found is None:
            raise ApiError(404, "NotFound", f'{kind} "{key}" not found')
        return msgspec.json.encode(found)


def key_of(item: Object) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def annotate(item: Object, annotations: dict[str, str | None]) -> None:
    """As a merge patch does: null removes."""
    kept = (item["metadata"].get("annotations") or {}) | annotations
    item["metadata"]["annotations"] = {key: value for key, value in kept.items() if value is not None}
