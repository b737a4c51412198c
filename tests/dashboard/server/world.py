"""The dashboard's server with pages, frames and a cluster that each test writes itself."""

import asyncio
import gzip
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.server import guard, serving
from gpushare.dashboard.server.access.local import Local
from gpushare.dashboard.server.access.reviewed import Reviewed
from gpushare.dashboard.server.routes import Access, Asked, Page, Routes, See
from gpushare.dashboard.server.sessions import Sessions
from gpushare.dashboard.server.static import Static
from gpushare.dashboard.server.streams import Streams
from gpushare.kube import client
from tests.support import scripted_api
from tests.support.scripted_api import Server, answer

TOKENS = "POST /apis/authentication.k8s.io/v1/tokenreviews"
FILES = {"index.html": "<!doctype html>", "app.css": "body {}" * 200, "js/main.js": "export {};"}
RIGHTS = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"


class Ticks:
    """Frames that a test sends."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self._clients: list[Callable[[bytes], None]] = []

    def since(self, epoch: str, seq: int) -> list[bytes] | None:
        return self.frames[seq:] if epoch == "e" and seq <= len(self.frames) else None

    def subscribe(self, client: Callable[[bytes], None], /) -> Callable[[], None]:
        self._clients.append(client)
        return lambda: self._clients.remove(client)

    def snapshot_body(self) -> tuple[str, bytes]:
        return f"e.{len(self.frames)}", gzip.compress(b'{"v":1}')

    def send(self, data: str) -> None:
        self.frames.append(f"id: e.{len(self.frames) + 1}\nevent: delta\ndata: {data}\n\n".encode())
        for tell in self._clients:
            tell(self.frames[-1])


class World:
    """What runs, and its clock. `get` and `post` ask as our own page does, unless a test says something else."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http, self.ticks = http, Ticks()
        self.now, self.port = 1_000_000.0, 0
        self.links: list[str] = []
        self.sessions = Sessions(lambda: self.now)
        self.turns: asyncio.Queue[float] = asyncio.Queue()
        self.waits: asyncio.Queue[float] = asyncio.Queue()
        self.not_ready = ""
        self.asked: list[tuple[Asked, Allowed]] = []
        self.streams: Streams | None = None

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Of the task that looks after streams: each `pass_` lets it go round once."""
        self.waits.put_nowait(seconds)
        self.now += await self.turns.get()

    async def pass_(self, seconds: float) -> None:
        await self.waits.get()
        self.turns.put_nowait(seconds)
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def login(self) -> None:
        (link, *_) = self.links[-1:]
        async with self.http.get(link, allow_redirects=False) as response:
            assert response.status == 303

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> aiohttp.ClientResponse:
        response = await self.http.get(f"{self.base}/{path}", headers=headers, allow_redirects=False)
        await response.read()
        return response

    async def post(
        self, path: str, data: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> aiohttp.ClientResponse:
        ours = {"Origin": self.base, guard.MARK: "1", "Content-Type": "application/json"}
        response = await self.http.post(
            f"{self.base}/{path}", data=data, headers={**ours, **(headers or {})}, allow_redirects=False
        )
        await response.read()
        return response

    async def raw(self, text: bytes) -> bytes:
        """All that is answered to these bytes, on a connection that then ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(text)
        try:
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()

    def page(self, parts: int, method: str = "GET") -> Page:
        async def make(asked: Asked, see: See) -> object | None:
            allowed = await see(["ours", "theirs"])
            self.asked.append((asked, allowed))
            return None if "missing" in asked.parts else {"parts": asked.parts, "seen": sorted(allowed or ())}

        return Page(parts, make, method)


@asynccontextmanager
async def serving_with(
    world: World, access: Access, hosts: Callable[[int], guard.Hosts], shown: Mapping[str, Page] | None = None
) -> AsyncIterator[World]:
    """`shown`: the pages, instead of those that only say what they were asked."""
    open_streams = Streams(world.ticks, access.ended, set(), sleep=world.sleep, clock=world.clock)
    pages = shown or {
        "node": world.page(1), "why": world.page(2), "waiting": world.page(0), "whatif": world.page(0, "POST")
    }  # fmt: skip
    routes: list[Routes] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await routes[0].handle(request)

    runner = await serving.listen(handle, "127.0.0.1", world.port, spared=open_streams.filenos)
    world.port = runner.addresses[0][1]
    routes.append(Routes(
        hosts(world.port), access, world.ticks, open_streams, pages, _files(), {"team-a": 0, "team-b": 1},
        cluster="test", not_ready=lambda: world.not_ready, probed=access.mode == "cluster",
    ))  # fmt: skip
    looking = asyncio.create_task(open_streams.run())
    world.streams = open_streams
    try:
        yield world
    finally:
        looking.cancel()
        await open_streams.close()
        await runner.cleanup()


@asynccontextmanager
async def local() -> AsyncIterator[World]:
    """For a person at this machine, who has not logged in yet."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        world = World(http)
        world.port = _free_port()
        access = Local(world.port, "ada", world.links.append, world.sessions, world.clock)
        async with serving_with(world, access, guard.local):
            access.invite()
            yield world


class Cluster:
    """What the API server says of users and rights from now on."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.may: set[tuple[str, str]] = {("nodes", ""), ("pods", "ours")}
        self.user: dict[str, Any] | None = {"username": "bob", "groups": ["g"], "uid": "u", "extra": {"k": ["v"]}}
        self.audiences = ["gpushare-dashboard"]
        server.on(TOKENS, self._whose)
        server.on(RIGHTS, self._rights)

    async def _whose(self, request: web.Request) -> web.StreamResponse:
        known = self.user is not None
        status = {"authenticated": known, "user": self.user, "audiences": self.audiences}
        return await answer({"status": status})(request)

    async def _rights(self, request: web.Request) -> web.StreamResponse:
        what = (await request.json())["spec"]["resourceAttributes"]
        allowed = what["verb"] == "list" and (what["resource"], what.get("namespace", "")) in self.may
        return await answer({"status": {"allowed": allowed}})(request)


@asynccontextmanager
async def cluster(
    *, behind_proxy: bool, shown: Mapping[str, Page] | None = None
) -> AsyncIterator[tuple[World, Cluster]]:
    """In a cluster; plain HTTP, because a test of TLS says nothing about who may see what."""
    async with (
        scripted_api.serve() as server,
        client.connect(server.access()) as api,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
    ):
        world = World(http)
        access = Reviewed(api, world.sessions, behind_proxy=behind_proxy, now=world.clock, clock=world.clock)
        async with serving_with(world, access, _any_scheme, shown):
            yield world, Cluster(server)


def _any_scheme(port: int) -> guard.Hosts:
    return guard.in_cluster(port, ["gpus.example.com"], behind_proxy=True)


def _files() -> Static:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "js").mkdir()
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text, "utf-8")
        return Static(Path(folder))


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


async def frames(response: aiohttp.ClientResponse, count: int) -> list[str]:
    """The next ones of a stream, without comments."""
    found: list[str] = []
    while len(found) < count:
        frame = (await asyncio.wait_for(response.content.readuntil(b"\n\n"), 10)).decode()
        if not frame.startswith(":"):
            found.append(frame.strip())
    return found
