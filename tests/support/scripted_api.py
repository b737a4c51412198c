"""A stand-in API server on 127.0.0.1 whose answers each test writes itself, and time that passes only when asked to."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from gpushare.kube import client
from gpushare.kube.auth import login

CERTS = Path(__file__).parent.parent / "kube" / "certs"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str  # as it was written, not decoded
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    peer: Any  # the address of who asked


@dataclass
class Server:
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    _answers: dict[str, list[Handler]] = field(default_factory=dict)

    def on(self, what: str, *answers: Handler) -> None:
        """`what` is "GET /path", "WATCH /path"...; answers are given in turn, the last one for ever."""
        self._answers[what] = list(answers)

    def count(self, what: str) -> int:
        return sum(1 for asked in self.asked if _what(asked) == what)

    def access(self) -> login.Access:
        return login.Access(self.url, context="test", user="tester", source="~/.kube/config")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        path = request.raw_path.partition("?")[0]
        asked = Asked(
            request.method,
            path,
            dict(request.query),
            dict(request.headers),
            json.loads(body) if body else None,
            request.transport.get_extra_info("peername") if request.transport is not None else None,
        )
        self.asked.append(asked)
        answers = self._answers.get(_what(asked))
        if not answers:
            return status(404, "NotFound", f"nothing at {path}")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return await answer(request)


def _what(asked: Asked) -> str:
    return f"{'WATCH' if asked.query.get('watch') else asked.method} {asked.path}"


@asynccontextmanager
async def serve(*, tls: bool = False, client_certificates: bool = False) -> AsyncIterator[Server]:
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=CERTS / "ca.crt")
        context.load_cert_chain(CERTS / "server.crt", CERTS / "server.key")
        context.verify_mode = ssl.CERT_REQUIRED if client_certificates else ssl.CERT_NONE
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        port = runner.addresses[0][1]
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serve_api(*, timeout: float = 5.0) -> AsyncIterator[tuple[Server, client.Api]]:
    async with serve() as server, client.connect(server.access(), timeout=timeout) as api:
        yield server, api


def answer(body: object, code: int = 200, headers: dict[str, str] | None = None) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=code, headers=headers)

    return handler


def refuse(code: int, reason: str = "", message: str = "", headers: dict[str, str] | None = None) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return status(code, reason, message, headers)

    return handler


def status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "metadata": {}}
    return web.json_response(body, status=code, headers=headers)


async def cut(request: web.Request) -> web.StreamResponse:
    """The connection is gone before there is an answer."""
    assert request.transport
    request.transport.abort()
    return web.Response()


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


def page(items: list[dict[str, Any]], version: str, token: str = "") -> Handler:
    return answer({"metadata": {"resourceVersion": version, "continue": token}, "items": items})


def watch(*events: dict[str, Any] | bytes, then: str = "end") -> Handler:
    """Sends the events, bytes as they are, and then ends the watch, keeps it open ("hang") or cuts it ("cut")."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        if then == "hang":
            await asyncio.sleep(60)
        if then == "cut":
            assert request.transport
            request.transport.abort()
        return response

    return handler


def pod(name: str, version: int | str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **metadata}}


def event(type: str, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": type, "object": item}


def bookmark(version: int) -> dict[str, Any]:
    """As the API server writes it for pods."""
    item = {"metadata": {"resourceVersion": str(version)}, "spec": {"containers": None}, "status": {}}
    return {"type": "BOOKMARK", "object": item}


@dataclass
class FakeTime:
    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
