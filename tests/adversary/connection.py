"""The extender's side of the server: its client without a socket, and the watches it opens.

The real client's requests come out here as method, path and body, so that the real reflectors list and watch bytes.
"""

import asyncio
from bisect import bisect_right
from typing import Any

import msgspec

from gpushare.kube import client
from gpushare.kube.errors import ApiError, Unreachable
from gpushare.kube.requests import Request
from tests.adversary.server import Object, Server

BOOKMARK_SECONDS = 60.0


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

    async def send(self, request: Request) -> bytes:
        await asyncio.sleep(0)
        server, words = self._server, request.path.strip("/").split("/")
        given: Object = msgspec.json.decode(msgspec.json.encode(request.body)) if request.body is not None else {}
        if words[-1] == "events" and server.down:
            server.unheard.add(given["involvedObject"].get("uid", ""))
        self._reachable()
        match request.method, words:
            case "GET", ["api", "v1", kind] | ["api", "v1", "namespaces", _, kind]:
                return server.list(kind, request.query or {})
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
        raise ApiError(404, "NotFound", f"{request.method} {request.path}")

    async def _open(self, request: Request, *, endless: bool = False) -> Any:
        await asyncio.sleep(0)
        self._reachable()
        since = int((request.query or {})["resourceVersion"])
        if since < self._server.compacted:
            raise ApiError(410, "Expired", f"too old resource version: {since}")
        return Stream(self._server, request.path.rpartition("/")[2], since)

    def _reachable(self) -> None:
        if self._server.down or self.cut_off:
            raise Unreachable("connection refused", sent=False)

    def _found(self, kind: str, key: str) -> bytes:
        found = self._server.kind(kind).get(key)
        if found is None:
            raise ApiError(404, "NotFound", f'{kind} "{key}" not found')
        return msgspec.json.encode(found)
