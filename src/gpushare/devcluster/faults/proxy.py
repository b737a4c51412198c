"""The fault proxy: stands in front of an embedded or real API server and makes faults by plan. For tests.

`async with FaultProxy(server.url, Plan(rates={LOST_REPLY: 0.1}), seed=1) as proxy` gives `proxy.url` to the component
under test. `plan` decides what goes wrong. Nothing is buffered in a watch. A dropped connection is dropped at the
socket, so that the client sees what a broken load balancer would show it.
"""

import asyncio
import collections
import contextlib
import io
import os
import random
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
import yarl
from aiohttp import web

from gpushare.devcluster import kubeconfig
from gpushare.devcluster.apiserver import status
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.plan import Plan

__all__ = ["FaultProxy", "Plan"]

_NOT_PASSED_ON: Final = {
    *("connection", "keep-alive", "transfer-encoding", "te", "upgrade", "host", "content-length"),
    "accept-encoding",  # so that events come as plain lines
}
_CONFLICT: Final = "Operation cannot be fulfilled by the fault proxy's choice: please try again"


class FaultProxy:
    """`plan` may be replaced at any time; `counts` says how often each fault was done, and how often none."""

    def __init__(
        self,
        upstream: str,
        plan: Plan | None = None,
        *,
        seed: int = 0,
        port: int = 0,
        token: str | None = None,
        ssl: ssl.SSLContext | bool = True,
    ) -> None:
        self.plan = plan or Plan()
        self.counts: collections.Counter[str] = collections.Counter()
        self.url = ""
        self._upstream = upstream.rstrip("/")
        self._dice = random.Random(seed)
        self._port = port
        self._token = token
        self._ssl = ssl
        self._late: set[asyncio.Task[None]] = set()
        self._resources = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._ssl)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._session = await self._resources.enter_async_context(
            aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        )
        server = web.Server(self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=3600)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        self._resources.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.settle()
        await self._resources.aclose()

    async def settle(self) -> None:
        """Waits until every late write has reached the upstream."""
        while self._late:
            await asyncio.wait(self._late)

    def write_kubeconfig(self, path: str | os.PathLike[str], token: str | None = None) -> Path:
        return kubeconfig.write(path, self.url, token)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        watching = request.method == "GET" and request.query.get("watch") in ("true", "1")
        fault = self.plan.choose(self._dice, request.method, request.path, watching)
        self.counts[fault or plan.PASSED] += 1
        body = b"".join([chunk async for chunk in request.content.iter_any()])
        if fault in plan.REFUSALS:
            return self._refuse(fault)
        if fault == plan.LATENCY:
            await asyncio.sleep(self._dice.uniform(*self.plan.latency))
        if fault == plan.LATE_WRITE:
            task = asyncio.create_task(self._send_later(request, body))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return _hang_up(request)
        try:
            if watching:
                return await self._stream(request, fault)
            reply = await self._forward(request, body)
        except aiohttp.ClientError:
            return _hang_up(request)  # the upstream is gone
        return _hang_up(request) if fault == plan.LOST_REPLY else reply

    def _refuse(self, fault: str) -> web.Response:
        code = int(fault)
        reasons = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
        message = _CONFLICT if code == 409 else f"the fault proxy answers {code}"
        headers = {"Retry-After": str(self.plan.retry_after)} if code == 429 else {}
        body = msgspec.json.encode(status.ApiError(code, reasons[code], message).body)
        return web.Response(status=code, body=body, content_type="application/json", headers=headers)

    def _request(
        self, request: web.BaseRequest, body: bytes | None
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = _passed_on(request.headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        url = yarl.URL(self._upstream + request.raw_path, encoded=True)
        skip = ("Accept-Encoding", "Content-Type")
        data = io.BytesIO(body) if body else None
        return self._session.request(request.method, url, headers=headers, data=data, skip_auto_headers=skip)

    async def _forward(self, request: web.BaseRequest, body: bytes) -> web.Response:
        async with self._request(request, body) as reply:
            content = await reply.read()
            return web.Response(status=reply.status, body=content, headers=_passed_on(reply.headers))

    async def _send_later(self, request: web.BaseRequest, body: bytes) -> None:
        await asyncio.sleep(self._dice.uniform(*self.plan.late_write))
        with contextlib.suppress(aiohttp.ClientError):
            async with self._request(request, body) as reply:
                await reply.read()

    async def _stream(self, request: web.BaseRequest, fault: str | None) -> web.StreamResponse:
        async with self._request(request, None) as upstream:
            response = web.StreamResponse(status=upstream.status, headers=_passed_on(upstream.headers))
            response.enable_chunked_encoding()
            await response.prepare(request)
            dice = random.Random(
                self._dice.random()
            )  # events come when they will; that must not change the faults of requests
            lines = _Lines(upstream.content)
            with contextlib.suppress(ConnectionError):
                await self._pass_lines(lines, response, dice, fault in (plan.WATCH_CUT, plan.WATCH_SILENT))
                if fault == plan.WATCH_SILENT:
                    await asyncio.Event().wait()  # until the client hangs up
                if lines.broken or (fault == plan.WATCH_CUT and dice.random() < 0.5):
                    return _hang_up(request)
                await response.write_eof()
            return response

    async def _pass_lines(
        self, lines: "_Lines", response: web.StreamResponse, dice: random.Random, cutting: bool
    ) -> None:
        """Passes events on, out of order if planned, until the upstream ends or this watch is to be cut."""
        clock = asyncio.get_running_loop().time
        left = dice.randint(*self.plan.watch_events) if cutting else -1
        end = clock() + dice.uniform(*self.plan.watch_seconds) if cutting else float("inf")
        disorder = plan.Disorder(dice, self.counts)
        while left != 0 and clock() < end:
            due = disorder.due()
            try:
                async with asyncio.timeout_at(None if due is None and not cutting else min(end, due or end)):
                    line = await lines.next()
            except TimeoutError:
                out = disorder.release(clock())
            else:
                if line is None:
                    break
                left -= 1
                out = disorder.feed(line, self.plan, clock())
            if out:
                await response.write(b"".join(out))
        if rest := disorder.flush():
            await response.write(b"".join(rest))


class _Lines:
    """Whole lines of a stream, however long. A wait for a line can be given up without a loss."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self.broken = False
        self._content = content
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                chunk = await self._content.readany()
            except aiohttp.ClientError:
                self.broken, chunk = True, b""
            if not chunk:
                return None
            self._buffer += chunk
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON}


def _hang_up(request: web.BaseRequest) -> web.Response:
    """Drops the connection without an answer. The returned response is not sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
