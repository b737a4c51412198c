"""The dashboard as a process on the real cluster: for a person at this machine, and as deploy/dashboard.yaml has it.

There it has the account of the manifest, so a right that it lacks fails a test. People log in with tokens of service
accounts, as the manifest says in its first lines.
"""

import asyncio
import contextlib
import itertools
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from tests.e2e.harness import forward, shipped
from tests.e2e.harness.cluster import ADMIN, Cluster, until
from tests.e2e.harness.processes import Process
from tests.support import extender_process, wait

FILE = "dashboard.yaml"
ACCOUNT = "gpushare-dashboard"
USER = f"system:serviceaccount:{shipped.NAMESPACE}:{ACCOUNT}"
AUDIENCE = "gpushare-dashboard"
PATIENCE = 60.0  # seconds
Settings = Mapping[str, object] | None  # constants by their full name

_PORTS = itertools.count(8843)


class Dashboard:
    """`words`: of its command line, without the port. It keeps its port when it is started again."""

    def __init__(self, cluster: Cluster, scheme: str, words: list[str], settings: Settings = None) -> None:
        self.cluster, self.port = cluster, next(_PORTS)
        self.url = f"{scheme}://127.0.0.1:{self.port}/"
        self._command = [*extender_process.command(settings), "dashboard", "--port", str(self.port), *words]
        self._begun = 0  # bytes of its log when it was started
        self.process: Process | None = None

    async def start(self) -> None:
        """It answers when this returns."""
        log = self.cluster.logs / f"dashboard-{self.port}.log"
        self._begun = log.stat().st_size if log.exists() else 0
        environment = {**os.environ, "POD_NAMESPACE": shipped.NAMESPACE, "LOG_LEVEL": "info"}
        process = self.cluster.processes.start(f"dashboard-{self.port}", *self._command, environment=environment)
        self.process = process
        await until("the dashboard", lambda: self.cluster.answers(self.url), process)

    async def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        process, self.process = self.process, None
        return await self.cluster.processes.end(process, how) if process is not None else 0

    async def link(self) -> str:
        """Logs in one browser, once."""
        async with aiohttp.ClientSession() as nobody, nobody.get(f"{self.url}api/me") as answer:
            assert answer.status == 401, answer.status  # whoever comes without a session makes it show a link

        def shown() -> str:
            assert self.process is not None
            with self.process.log.open("rb") as log:
                log.seek(self._begun)
                return next(reversed(re.findall(r"^Dashboard: (\S+)$", log.read().decode(), re.MULTILINE)), "")

        return await wait.eventually(shown, "a link", PATIENCE)


@contextlib.asynccontextmanager
async def local(cluster: Cluster) -> AsyncIterator[Dashboard]:
    """With the kubeconfig of an admin."""
    config = cluster.kubeconfig(ADMIN, cluster.tokens[ADMIN])
    async with running(Dashboard(cluster, "http", ["--no-browser", "--kubeconfig", str(config)])) as dashboard:
        yield dashboard


@contextlib.asynccontextmanager
async def in_cluster(cluster: Cluster, *words: str, settings: Settings = None) -> AsyncIterator[Dashboard]:
    """With the account of its manifest, whose rights are there for as long."""
    scheme = "http" if "--behind-proxy" in words else "https"
    rights = shipped.rights(FILE)
    await cluster.apply(*rights)
    try:
        config = await cluster.account_kubeconfig(shipped.NAMESPACE, ACCOUNT)
        given = ["--in-cluster", "--listen", "127.0.0.1", "--kubeconfig", str(config), *words]
        async with running(Dashboard(cluster, scheme, given, settings)) as dashboard:
            ready = f"{dashboard.url}readyz"
            assert dashboard.process is not None
            await until("the cluster is read", lambda: cluster.answers(ready), dashboard.process)
            yield dashboard
    finally:
        for one in reversed(rights):
            where = ("--namespace", one["metadata"].get("namespace", "default"))
            await cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found", *where)


@contextlib.asynccontextmanager
async def running(dashboard: Dashboard) -> AsyncIterator[Dashboard]:
    await dashboard.start()
    try:
        yield dashboard
    finally:
        code = await dashboard.end()
    assert code == 0, f"the dashboard ended with exit code {code}"


async def token(cluster: Cluster, namespace: str, account: str, audience: str = AUDIENCE) -> str:
    made = await cluster.kubectl("create", "token", account, "-n", namespace, f"--audience={audience}")
    return made.strip()


class Reader:
    """Somebody without a browser, who gets every byte as it comes."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status; headers and body."""
        async with self._session.get(self._url + path, ssl=False) as answer:
            return answer.status, str(answer.raw_headers).encode() + await answer.read()

    async def post(self, path: str, **body: Any) -> tuple[int, bytes]:
        headers = {"X-Gpushare": "1", "Origin": self._url.rstrip("/")}
        async with self._session.post(self._url + path, ssl=False, headers=headers, json=body) as answer:
            return answer.status, str(answer.raw_headers).encode() + await answer.read()

    @contextlib.asynccontextmanager
    async def stream(self, start: str = "0.0") -> AsyncIterator[aiohttp.StreamReader]:
        forever = aiohttp.ClientTimeout(total=None)
        where = f"{self._url}api/stream?from={start}"
        async with self._session.get(where, ssl=False, timeout=forever) as answer:
            assert answer.status == 200, await answer.text()
            yield answer.content


@contextlib.asynccontextmanager
async def logged_in(dashboard: Dashboard, shown: str) -> AsyncIterator[Reader]:
    """By the form, with this token."""
    jar = aiohttp.CookieJar(unsafe=True)  # also of a host that has no name
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        headers = {"Origin": dashboard.url.rstrip("/")}
        async with session.post(
            f"{dashboard.url}login", ssl=False, data={"token": shown}, headers=headers, allow_redirects=False
        ) as answer:
            assert answer.status == 303, await answer.text()
        yield Reader(session, dashboard.url)


@contextlib.asynccontextmanager
async def opened(dashboard: Dashboard, link: str) -> AsyncIterator[Reader]:
    """By a link that logs in once."""
    jar = aiohttp.CookieJar(unsafe=True)
    limit = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(cookie_jar=jar, connector=limit) as session:
        async with session.get(link) as answer:
            assert answer.status == 200, await answer.text()
        yield Reader(session, dashboard.url)


class Between:
    """A proxy that knows nothing of HTTP. `cut` ends all connections at once, as one that is restarted does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: set[asyncio.StreamWriter] = set()
        self.url, self.connections = "", 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            await forward.pass_on(reader, writer, "127.0.0.1", self._port)
        finally:
            self._open.discard(writer)

    def cut(self) -> int:
        """How many were open."""
        count = len(self._open)
        for writer in list(self._open):
            writer.transport.abort()
        return count


@contextlib.asynccontextmanager
async def behind(dashboard: Dashboard) -> AsyncIterator[Between]:
    between = Between(dashboard.port)
    server = await asyncio.start_server(between.connected, "127.0.0.1", 0)
    scheme = dashboard.url.partition(":")[0]
    between.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield between
    finally:
        between.cut()
        server.close()
