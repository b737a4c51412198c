"""The embedded API server: HTTP in front of the registry. A stand-in for tests and the demo, not a Kubernetes.

It runs inside a test (`async with ApiServer() as server`) or as a process (`python -m
gpushare.devcluster.apiserver.server --port 0 --kubeconfig-out FILE`, which prints one line when it is ready), and
listens on loopback only. `registry`, `listing` and `watching` decide everything.
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
from typing import Final, Self

import msgspec
from aiohttp import web

from gpushare.core.admission import containers, pinning, scheduler_name, unasked
from gpushare.core.facts import names
from gpushare.devcluster import kubeconfig
from gpushare.devcluster.apiserver import answers, discovery, listing, paths, registry, status, watching, writing
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.store import Store

UNASKED_DENIES: Final = "ValidatingAdmissionPolicy 'gpushare-unasked' with binding 'gpushare-unasked' denied request"
WRITES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
NO_INITIAL_EVENTS: Final = (
    "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
)
Logs = Callable[[str, str, str], str]  # namespace, pod, container ("" for the only one)


@dataclass(frozen=True)
class Audit:
    """One write request and its outcome."""

    verb: str
    path: str
    user_agent: str
    code: int
    time: float


class ApiServer:
    """Public attributes may be changed while it runs: `audit_on`, `expired_as_status`, `bookmark_seconds`, `token`.

    `pin_directly`: new pods are changed as deploy/admission.yaml does, in namespaces with the labels
    `pin_namespaces`. `pin_nvidia`: and as deploy/admission-nvidia.yaml does. `void_unasked`: and as deploy/unasked.yaml
    does. `scheduler`: and as deploy/scheduler-name.yaml does, with this name. `logs`: reads the log of a container.
    """

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
        pin_directly: bool = False,
        pin_namespaces: Mapping[str, str] | None = None,
        pin_nvidia: bool = False,
        void_unasked: bool = False,
        scheduler: str = "",
        clock: Callable[[], float] = time.time,
        dice: random.Random | None = None,
    ) -> None:
        self.store = Store(table.selectable, history=history)
        self.registry = registry.Registry(
            self.store,
            clock=clock,
            ignore_binding_uid=ignore_binding_uid,
            nodes_copy_capacity=nodes_copy_capacity,
            admit=self._admit if pin_directly or pin_nvidia or void_unasked or scheduler else None,
            dice=dice,
        )
        self.token = token
        self._pin_directly, self._pin_namespaces = pin_directly, pin_namespaces or {}
        self._pin_nvidia, self._void_unasked, self._scheduler = pin_nvidia, void_unasked, scheduler
        self.version = version
        self.bookmark_seconds = bookmark_seconds
        self.slow_watch_seconds = slow_watch_seconds
        self.audit_on = audit
        self.audit: list[Audit] = []
        self.expired_as_status = expired_as_status
        self.logs: Logs | None = None
        self.hub = watching.Hub()
        self.url = ""
        self._port = port
        self._clock = clock
        self.store.changed = self.hub.wake
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
        self.hub.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def load(self, objects: Iterable[Object]) -> int:
        """For tests: stores many objects without checks, before clients connect."""
        return self.registry.load(objects)

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> Path:
        return kubeconfig.write(path, self.url, self.token)

    def _admit(self, pod: Object) -> None:
        namespace = self.registry.get(registry.NAMESPACES, "", pod["metadata"]["namespace"])
        if self._pin_directly and self._pin_namespaces.items() <= namespace.labels.items():
            containers.add(pod, pinning.pin(pod))
        key, left = pinning.NVIDIA_LEFT
        if self._pin_nvidia and namespace.labels.get(key) != left:
            containers.add(pod, pinning.pin(pod, [names.NVIDIA_GPU]))
        if self._void_unasked and namespace.labels.get(unasked.LABEL) != unasked.LEFT_ALONE:
            if why := unasked.too_many(pod):
                raise status.forbidden("pods", pod["metadata"].get("name", ""), f"{UNASKED_DENIES}: {why}")
            if unasked.applies(namespace.key, namespace.labels):
                containers.add(pod, unasked.void(pod))
        if self._scheduler and scheduler_name.assigned(pod):
            pod["spec"]["schedulerName"] = self._scheduler

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
                raise status.unauthorized()
            response = await self._answer(request)
        except status.ApiError as error:
            response = answers.reply(error.code, error.body)
        except (AttributeError, KeyError, TypeError) as error:  # a body that no rule expects
            response = answers.reply(500, status.internal(repr(error)).body)
        if self.audit_on and request.method in WRITES:
            agent = request.headers.get("User-Agent", "")
            self.audit.append(Audit(WRITES[request.method], request.path, agent, response.status, self._clock()))
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET" and request.path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        if request.method == "GET" and (discovered := discovery.answer(request.path, self.version)) is not None:
            if answers.OPENAPI_V2_ASKED in request.headers.get("Accept", ""):
                return web.Response(content_type=answers.OPENAPI_V2)  # an empty schema, in kubectl's binary form
            return answers.reply(200, discovered)
        target = paths.parse(request.path)
        if request.query.get("dryRun") and not writing.is_trial(request, target):
            raise status.not_supported(answers.NO_TRIAL)
        if request.method == "GET":
            return await self._read(request, target)
        if request.method not in WRITES:
            raise status.not_allowed()
        body = await answers.body(request)
        return writing.write(self.registry, request, target, body)

    async def _read(self, request: web.BaseRequest, target: paths.Target) -> web.StreamResponse:
        kind = target.kind
        rows = answers.rows(request, kind, self._clock)
        if target.name:
            return self._read_one(request, target, rows)
        query = listing.read(kind, request.query)
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request, target, query, rows)
        metadata, page = listing.page(self.store, kind, target.namespace, query)
        body = rows.table([entry.obj() for entry in page], metadata) if rows else listing.answer(kind, metadata, page)
        return web.Response(body=body, content_type=answers.JSON)

    def _read_one(self, request: web.BaseRequest, target: paths.Target, rows: answers.Rows | None) -> web.Response:
        kind, namespace, name = target.kind, target.namespace, target.name
        match target.subresource:
            case "binding":
                raise status.not_allowed()
            case "scale":
                return answers.reply(200, self.registry.scale(kind, namespace, name))
            case "log":
                if self.logs is None:
                    raise status.not_supported("pods/log")
                text = self.logs(namespace, name, request.query.get("container", ""))
                return web.Response(text=answers.tail(request, text))
        from_cache = request.query.get("resourceVersion") == "0"
        data = self.registry.get(kind, namespace, name, from_cache).data
        if rows:
            return web.Response(body=rows.one(data), content_type=answers.JSON)
        return answers.whole(200, kind, data)

    async def _watch(
        self, request: web.BaseRequest, target: paths.Target, query: listing.Query, rows: answers.Rows | None
    ) -> web.StreamResponse:
        if request.query.get("sendInitialEvents"):
            cause = ("sendInitialEvents", "FieldValueForbidden", NO_INITIAL_EVENTS)
            raise status.invalid("ListOptions", "", [cause])
        seconds = listing.number(request.query, "timeoutSeconds") or random.uniform(1800, 3600)
        bookmarks = self.bookmark_seconds if request.query.get("allowWatchBookmarks") in ("true", "1") else None
        try:
            show = rows.one if rows else None
            watch = watching.Watch(self.store, self.hub, target.kind, target.namespace, query, show)
            lines = watch.lines(seconds, bookmarks)
        except status.ApiError as error:
            if self.expired_as_status:
                raise
            lines = _only(watching.error_line(error))
        response = web.StreamResponse(headers={"Content-Type": answers.JSON})
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
                request.transport.abort()  # a client that does not read is cut off
            return False
        return True


async def _only(line: bytes) -> AsyncGenerator[bytes, None]:
    yield line


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
            gc.freeze()  # loaded objects are never garbage
        if arguments.kubeconfig_out:
            server.write_kubeconfig(arguments.kubeconfig_out)
        print(f"ready {server.url}", flush=True)
        await stop.wait()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="gpushare's test API server. A stand-in, not a Kubernetes.")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--kubeconfig-out", metavar="FILE", help="write a kubeconfig for this server")
    parser.add_argument("--token", help="the bearer token that clients must send")
    parser.add_argument("--load", metavar="FILE", help="objects to start with, one JSON object a line")
    parser.add_argument(
        "--nodes-copy-capacity", action="store_true", help="copy capacity to allocatable, as kubelet does"
    )
    asyncio.run(serve(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
