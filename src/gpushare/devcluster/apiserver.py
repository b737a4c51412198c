"""The embedded API server: HTTP before the registry. A test double, not a Kubernetes: see the package's docstring.

Used inside a test (`async with ApiServer() as server`) or as a process of its own
(`python -m gpushare.devcluster.apiserver --port 0 --kubeconfig-out FILE`, which prints one line when it is ready).
It listens on loopback only. Everything is decided in `registry`, `listing` and `watching`.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import random
import signal
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from gpushare.devcluster import kinds, kubeconfig, listing, patches, paths, registry, status, watching
from gpushare.devcluster.status import Object
from gpushare.devcluster.store import Store

BODY_LIMIT: Final = 3 * 1024 * 1024  # as a real server
WRITES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
NO_INITIAL_EVENTS: Final = (
    "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
)
_JSON: Final = "application/json"


@dataclass(frozen=True)
class Audit:
    """One write that was asked for, whatever became of it."""

    verb: str
    path: str
    user_agent: str
    code: int
    time: float


class ApiServer:
    """Public attributes may be changed while it runs: `audit_on`, `expired_as_status`, `bookmark_seconds`, `token`."""

    def __init__(
        self,
        *,
        port: int = 0,
        token: str | None = None,
        version: str = "1.36",
        history: int = 20_000,
        bookmark_seconds: float = 60.0,
        slow_watch_seconds: float = 30.0,
        audit: bool = True,
        expired_as_status: bool = False,
        ignore_binding_uid: bool = False,
        nodes_copy_capacity: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = Store(kinds.selectable, history=history)
        self.registry = registry.Registry(
            self.store, clock=clock, ignore_binding_uid=ignore_binding_uid, nodes_copy_capacity=nodes_copy_capacity
        )
        self.token = token
        self.version = version
        self.bookmark_seconds = bookmark_seconds
        self.slow_watch_seconds = slow_watch_seconds
        self.audit_on = audit
        self.audit: list[Audit] = []
        self.expired_as_status = expired_as_status
        self.url = ""
        self._port = port
        self._clock = clock
        self._hub = watching.Hub()
        self.store.changed = self._hub.wake
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        server = web.Server(self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=3600)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hub.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def load(self, objects: Iterable[Object]) -> int:
        """Test hook: many objects at once, stored as given, before clients come."""
        return self.registry.load(objects)

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> Path:
        return kubeconfig.write(path, self.url, self.token)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
                raise status.unauthorized()
            response = await self._answer(request)
        except status.ApiError as error:
            response = _reply(error.code, error.body)
        except (AttributeError, KeyError, TypeError) as error:  # a body so odd that no rule foresaw it
            response = _reply(500, status.internal(repr(error)).body)
        if self.audit_on and request.method in WRITES:
            agent = request.headers.get("User-Agent", "")
            self.audit.append(Audit(WRITES[request.method], request.path, agent, response.status, self._clock()))
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET" and request.path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        if request.method == "GET" and (fixed := paths.fixed(request.path, self.version)):
            return _reply(200, fixed)
        target = paths.parse(request.path)
        if request.query.get("dryRun"):
            raise status.not_in_the_double("dryRun")
        if request.method == "GET":
            return await self._read(request, target)
        if request.method not in WRITES:
            raise status.not_allowed()
        body = await _body(request)
        return self._write(request, target, body)

    async def _read(self, request: web.BaseRequest, target: paths.Target) -> web.StreamResponse:
        kind = target.kind
        if target.subresource == "binding":
            raise status.not_allowed()
        if target.name:
            old_will_do = request.query.get("resourceVersion") == "0"
            return _object(200, kind, self.registry.get(kind, target.namespace, target.name, old_will_do).data)
        query = listing.read(kind, request.query)
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request, target, query)
        body = listing.answer(self.store, kind, target.namespace, query)
        return web.Response(body=body, content_type=_JSON)

    def _write(self, request: web.BaseRequest, target: paths.Target, body: bytes) -> web.Response:
        """Runs without awaiting: what is read here is what is written over."""
        kind, namespace, name = target.kind, target.namespace, target.name
        match request.method, bool(name), target.subresource:
            case "POST", _, "binding":
                self.registry.bind(namespace, _decode(body, "Binding"), name)
                return _reply(201, status.success(201))
            case "POST", False, "" if namespace or not kind.namespaced:
                return _object(201, kind, self.registry.create(kind, namespace, _decode(body, kind.kind)))
            case "PUT", True, "" | "status":
                obj = _decode(body, kind.kind)
                return _object(200, kind, self.registry.update(kind, namespace, name, obj, target.subresource))
            case "PATCH", True, "" | "status":
                patches.check(request.content_type)
                patch = _decode(body, "patch")
                changed = self.registry.patch(kind, namespace, name, request.content_type, patch, target.subresource)
                return _object(200, kind, changed)
            case "DELETE", True, "":
                return _object(200, kind, self.registry.delete(kind, namespace, name, _delete_options(request, body)))
            case "DELETE", False, "" if namespace or not kind.namespaced:
                return self._delete_collection(request, target, _delete_options(request, body))
        raise status.not_allowed()

    def _delete_collection(self, request: web.BaseRequest, target: paths.Target, options: Object) -> web.Response:
        kind, namespace = target.kind, target.namespace
        query = listing.read(kind, request.query)
        body = listing.answer(self.store, kind, namespace, query)
        for entry in listing.select(self.store, kind, namespace, query)[1]:
            self.registry.delete(kind, namespace, entry.key.rpartition("/")[2], options)
        return web.Response(body=body, content_type=_JSON)

    async def _watch(self, request: web.BaseRequest, target: paths.Target, query: listing.Query) -> web.StreamResponse:
        if request.query.get("sendInitialEvents"):
            cause = ("sendInitialEvents", "FieldValueForbidden", NO_INITIAL_EVENTS)
            raise status.invalid("ListOptions", "", [cause])
        seconds = listing.number(request.query, "timeoutSeconds") or random.uniform(1800, 3600)
        bookmarks = self.bookmark_seconds if request.query.get("allowWatchBookmarks") in ("true", "1") else None
        try:
            watch = watching.Watch(self.store, self._hub, target.kind, target.namespace, query)
            lines = watch.lines(seconds, bookmarks)
        except status.ApiError as error:
            if self.expired_as_status:
                raise
            lines = _only(watching.error_line(error))
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async with contextlib.aclosing(lines):
                async for batch in lines:
                    if not await self._send(request, response, batch):
                        return response
            await response.write_eof()
        return response

    async def _send(self, request: web.BaseRequest, response: web.StreamResponse, batch: bytes) -> bool:
        try:
            async with asyncio.timeout(self.slow_watch_seconds):
                await response.write(batch)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # a client that does not read is cut, not waited for
            return False
        return True


async def _only(line: bytes) -> AsyncGenerator[bytes, None]:
    yield line


async def _body(request: web.BaseRequest) -> bytes:
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise status.too_big(BODY_LIMIT)
    return bytes(body)


def _decode(body: bytes, kind: str) -> Any:
    try:
        obj = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind}): {error}") from error
    if not isinstance(obj, dict):
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind}): not an object")
    return obj


def _delete_options(request: web.BaseRequest, body: bytes) -> Object:
    options: Object = _decode(body, "DeleteOptions") if body else {}
    if "gracePeriodSeconds" in request.query and not body:
        options["gracePeriodSeconds"] = int(listing.number(request.query, "gracePeriodSeconds"))
    return options


def _object(code: int, kind: kinds.Kind, data: bytes) -> web.Response:
    whole = data if data.startswith(b'{"kind"') else kind.head + data[1:]
    return web.Response(status=code, body=whole + b"\n", content_type=_JSON)


def _reply(code: int, body: Mapping[str, Any]) -> web.Response:
    return web.Response(status=code, body=msgspec.json.encode(body) + b"\n", content_type=_JSON)


def _objects_of(file: Path) -> Iterator[Object]:
    with file.open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


async def serve(arguments: argparse.Namespace) -> None:
    """Runs until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ApiServer(
        port=arguments.port, token=arguments.token, nodes_copy_capacity=arguments.nodes_copy_capacity
    ) as server:
        if arguments.load:
            server.load(_objects_of(Path(arguments.load)))
            gc.freeze()  # what was loaded is no garbage
        if arguments.kubeconfig_out:
            server.write_kubeconfig(arguments.kubeconfig_out)
        print(f"ready {server.url}", flush=True)
        await stop.wait()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="gpushare's test API server. A test double, not a Kubernetes.")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--kubeconfig-out", metavar="FILE", help="write a kubeconfig for this server")
    parser.add_argument("--token", help="the bearer token to demand")
    parser.add_argument("--load", metavar="FILE", help="objects to start with, one JSON object a line")
    parser.add_argument("--nodes-copy-capacity", action="store_true", help="do what kubelet does with node capacity")
    asyncio.run(serve(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
