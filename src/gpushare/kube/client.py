"""Sends requests to the API server, and decides nothing.

A request is data (`requests`), for any kind of object (`resources`); the type that an answer is decoded into is the
caller's, with only the fields that are read. All requests share one pool of connections; who makes many short writes
has a few more for them (`kept`). Each request ends after a bounded time, and a failure is either an answer (ApiError),
no answer (Unreachable, which says whether the request may have been carried out) or not what was promised (Malformed).
Bodies are never logged.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
import yarl

from gpushare.kube import answers, models, stream
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import ApiError, Malformed
from gpushare.kube.kept.pool import Pool
from gpushare.kube.requests import JSON, Query, Request
from gpushare.kube.resources import Resource

T = TypeVar("T")

TIMEOUT = 10.0  # seconds, for each request
SILENCE = 5.0  # seconds without an event on a watch, before the API server is asked whether it still answers
PATIENCE = 90.0  # seconds without an event, before a watch is opened again, even if the API server answers
CONNECTIONS = 200
FIRST_PAGE = 25  # objects; how large they are is not known yet
PAGE_BYTES = 4 << 20  # decoded at once, about
AGENT = "gpushare"

ANY_NAMESPACE = "kube-system"  # one that every cluster has
NOBODY = "gpushare-nobody"  # a name that no object has


class Api:
    """One API server as one user. Made by `connect`."""

    def __init__(self, access: Access, session: aiohttp.ClientSession, kept: Pool, timeout: float) -> None:
        self.access = access
        self._session, self._kept = session, kept
        self._timeout = timeout
        self._version: tuple[int, int] | None = None
        self.date = ""  # the API server's clock at its last answer, as HTTP writes it; empty: no answer yet

    async def send(self, request: Request) -> bytes:
        """The body of the answer."""
        if request.method == "POST" and request.body is not None and not request.query:
            answered = await self._post(request)
            if answered is not None:
                return answered
        response = await self._open(request)
        async with response:
            try:
                return await response.read()
            except (aiohttp.ClientError, OSError) as error:
                raise answers.unreachable(error, self._timeout) from error

    async def fetch(self, request: Request, kind: type[T]) -> T:
        """The object of the answer."""
        return answers.decode(await self.send(request), kind, request.path)

    async def find(self, request: Request, kind: type[T]) -> T | None:
        """The same, or None if there is no such object."""
        try:
            return await self.fetch(request, kind)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list_pages(
        self, resource: Resource, kind: type[T], *, namespace: str = "", query: Query | None = None, limit: int = 500
    ) -> AsyncIterator[tuple[list[T], str]]:
        """A consistent list, page by page, each page with the resource version of the whole list.

        It is read without a resource version, because a list from the API server's cache may lack bound pods. Pages
        get shorter when objects are large. An ApiError 410 between two pages: the list has expired, start again.
        """
        path, sent, size = resource.collection(namespace), dict(query or {}), min(limit, FIRST_PAGE)
        while True:
            sent["limit"] = str(size)
            body = await self.send(Request("GET", path, sent))
            page: models.ListOf[T] = answers.decode(body, models.ListOf[kind], path)  # type: ignore[valid-type]
            if not page.metadata.resource_version:
                raise Malformed(f"{path}: a list without a resource version")
            items = page.items or []
            size = max(1, min(limit, PAGE_BYTES * len(items) // len(body))) if items else limit
            yield items, page.metadata.resource_version
            if not page.metadata.continue_:
                return
            sent["continue"] = page.metadata.continue_

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        kind: type[stream.T],
        resource_version: str,
        *,
        namespace: str = "",
        query: Query | None = None,
        timeout_seconds: int = 300,
        silence: float = SILENCE,
    ) -> AsyncIterator[AsyncIterator[stream.WatchEvent[stream.T]]]:
        """Entered when the API server has accepted the watch. The iterator ends when the API server ends the watch.

        An ERROR event is raised as an ApiError. After `silence` seconds without an event there is an event SILENT.
        """
        sent = dict(query or {})
        sent["watch"] = "true"
        sent["resourceVersion"] = resource_version
        sent["allowWatchBookmarks"] = "true"
        sent["timeoutSeconds"] = str(timeout_seconds)
        path = resource.collection(namespace)
        response = await self._open(Request("GET", path, sent), endless=True)
        try:
            async with aclosing(stream.events(response.content, kind, path, silence, self._timeout)) as events:
                yield events
        finally:
            response.close()

    async def revision(self, resource: Resource, namespace: str = "") -> str:
        """The current revision of the store that holds objects of that kind.

        This is the cheapest way to read it: a list of one name, which the API server reads as a single key of etcd and
        not from a cache that may be behind. No object has that name, so the answer is empty. A name is a key only
        within a namespace, so a list of all namespaces is replaced by that of one. Each kind is asked for separately:
        an API server may keep kinds in different etcds.
        """
        path = resource.collection(namespace or (ANY_NAMESPACE if resource.namespaced else ""))
        query = {"fieldSelector": f"metadata.name={NOBODY}"}
        listed = await self.fetch(Request("GET", path, query), models.Versioned)
        return listed.metadata.resource_version

    async def version(self) -> tuple[int, int]:
        """The version of the API server: major and minor. Read once."""
        if self._version is None:
            answer = await self.fetch(Request("GET", "/version"), models.ServerVersion)
            numbers = [re.match(r"\d+", part) for part in (answer.major, answer.minor)]  # "27+" on some clouds
            if not all(numbers):
                raise Malformed("/version: no major and minor version")
            major, minor = (int(number[0]) for number in numbers if number)
            self._version = (major, minor)
        return self._version

    async def _post(self, request: Request) -> bytes | None:
        """Over a connection that is kept for it. None: nothing was carried out, and the ordinary way is open."""
        if not self._kept.is_on:
            return None
        headers = await self.access.headers()
        headers["Content-Type"] = request.content_type
        try:
            answered = await self._kept.post(request.path, msgspec.json.encode(request.body), headers)
        except OSError as error:
            raise answers.unreachable(error, self._timeout) from error
        if answered is None or answered.status == 401:  # the ordinary way renews credentials
            return None
        self.date = answered.field(b"date")
        if 200 <= answered.status < 300:
            return answered.body
        raise answers.refusal(answered.status, answered.reason, answered.field(b"retry-after"), answered.body)

    async def _open(self, request: Request, *, endless: bool = False) -> aiohttp.ClientResponse:
        """A response with a good status, its body not read yet. After a 401: once more, with new credentials."""
        data = None if request.body is None else msgspec.json.encode(request.body)
        headers = await self.access.headers()
        context = self.access.ssl
        response = await self._send(request, data, headers, endless)
        if response.status == 401:
            response.close()
            # If many requests are refused together, the first one renews the credentials for all.
            if await self.access.headers() == headers and self.access.ssl is context:
                self.access.refresh()
            headers = await self.access.headers()
            response = await self._send(request, data, headers, endless)
        self.date = response.headers.get("Date", "")
        if 200 <= response.status < 300:
            return response
        async with response:
            try:
                async with asyncio.timeout(self._timeout):
                    body = await response.read()
            except (aiohttp.ClientError, OSError):
                body = b""  # the status says enough
            raise answers.refusal(response.status, response.reason, response.headers.get("Retry-After"), body)

    async def _send(
        self, request: Request, data: bytes | None, headers: Mapping[str, str], endless: bool
    ) -> aiohttp.ClientResponse:
        query = f"?{urlencode(request.query)}" if request.query else ""
        limit = aiohttp.ClientTimeout(total=None if endless else self._timeout, connect=self._timeout / 2)
        try:
            async with asyncio.timeout(self._timeout if endless else None):
                return await self._session.request(
                    request.method,
                    yarl.URL(self.access.server + request.path + query, encoded=True),
                    data=data,
                    headers={**headers, "Content-Type": request.content_type} if data else headers,
                    timeout=limit,
                    allow_redirects=False,  # the API server sends none, and credentials must not go elsewhere
                    ssl=self.access.ssl or True,
                    server_hostname=self.access.server_name,
                    proxy=self.access.proxy,
                )
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise answers.unreachable(error, self._timeout) from error


@asynccontextmanager
async def connect(
    access: Access, *, timeout: float = TIMEOUT, agent: str = AGENT, kept: int = 0
) -> AsyncIterator[Api]:  # fmt: skip
    """Nothing is sent yet. `agent`: our name in the audit log of the API server. `kept`: connections that are kept for
    short writes, for who makes many."""
    headers = {
        "Accept": JSON,
        "Accept-Encoding": "identity",  # packing costs the API server, and us, more than the network saves
        "User-Agent": agent,
    }
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS), headers=headers, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        pool = Pool(access, kept, headers, timeout)
        try:
            yield Api(access, session, pool, timeout)
        finally:
            await pool.close()
