"""Which path gets which answer. Who asks and what they may see is known before an answer is made.

Pages of the API are data. Each asks what the reader may see when it knows whose pods it would name.
"""

import functools
import gzip
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec
from aiohttp import web

import gpushare
from gpushare.core.facts.policies import POLICIES
from gpushare.dashboard.allowed import Allowed, is_allowed
from gpushare.dashboard.server import guard, problems, static
from gpushare.dashboard.server.problems import Problem
from gpushare.dashboard.server.sessions import Session
from gpushare.dashboard.server.streams import Streams
from gpushare.obs import log
from gpushare.obs.errors import UserError

NOT_FOUND: Final = "there is nothing at this address"
NOT_READ: Final = "the cluster is being read"
TOO_LARGE: Final = "the text is larger than 256 KiB"
BUG: Final = "this is a bug in gpushare"
STATIC: Final = "/static/"
JSON: Final = "application/json"

logger = log.get(__name__)


class Asked(NamedTuple):
    parts: tuple[str, ...]  # of the path, after the page's name
    query: Mapping[str, str]
    body: bytes = b""


See = Callable[[Iterable[str]], Awaitable[Allowed]]
"""Which of these namespaces the reader may see the pods of; None: all there are."""


class Page(NamedTuple):
    """`parts`: how many there are. `make` asks only about namespaces that its answer names; None: no such thing."""

    parts: int
    make: Callable[[Asked, See], Awaitable[object | None]]
    method: str = "GET"


class Access(Protocol):
    """Who asks."""

    @property
    def mode(self) -> str: ...

    async def who(self, request: web.BaseRequest, /) -> Session: ...

    async def login(self, request: web.BaseRequest, /) -> web.StreamResponse: ...

    async def logout(self, request: web.BaseRequest, /) -> web.StreamResponse: ...

    async def ended(self, session: Session, /) -> str: ...

    async def allowed(self, session: Session, namespaces: Iterable[str], /) -> Allowed: ...

    def name(self, session: Session, /) -> str: ...


class Broadcast(Protocol):
    """The state that is the same for everybody."""

    def snapshot_body(self) -> tuple[str, bytes]: ...


class Routes:
    """`namespaces`: their numbers in the stream. `not_ready`: why nothing can be shown yet; empty: it can. `probed`:
    whether kubelet asks."""

    def __init__(
        self,
        hosts: guard.Hosts,
        access: Access,
        broadcast: Broadcast,
        streams: Streams,
        pages: Mapping[str, Page],
        files: static.Static,
        namespaces: Mapping[str, int],
        *,
        cluster: str,
        not_ready: Callable[[], str],
        probed: bool,
    ) -> None:
        self._hosts, self._access, self._broadcast, self._streams = hosts, access, broadcast, streams
        self._pages, self._files, self._cluster = pages, files, cluster
        self._namespaces = namespaces
        self._not_ready, self._probed = not_ready, probed

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Every request."""
        try:
            if len(request.headers.getall("Host", [])) > 1:
                raise Problem(400, "there are two Host headers")
            guard.check(request.method, request.path, request.headers, self._hosts)
            return await self._answer(request)
        except Problem as problem:
            found = problem
        except UserError as error:
            found = Problem(400, error.what, error.why, error.way)
        except web.HTTPRequestEntityTooLarge:
            found = Problem(413, TOO_LARGE)
        except (web.RequestPayloadError, ConnectionError):
            found = Problem(400, "the request was cut off")
        except Exception as error:  # noqa: BLE001 - one answer that cannot be made must not end the connection
            logger.error("a bug in gpushare", where=_shape(request.path), error=type(error).__name__)
            logger.debug("its trace", error=repr(error))
            found = Problem(500, BUG, type(error).__name__, "the log of the dashboard has a line about it")
        person = not request.path.startswith(guard.API) and "text/html" in request.headers.get("Accept", "")
        return problems.as_page(found) if person else problems.as_json(found)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path.startswith(guard.API):
            return await self._api(request, path.removeprefix(guard.API))
        if path == "/login":
            return await self._access.login(request)
        if path == "/logout" and request.method == "POST":
            return await self._access.logout(request)
        if self._probed and path in guard.PROBES:
            sentence = self._not_ready() if path == "/readyz" else ""
            return web.Response(status=503 if sentence else 200, text=f"{sentence or 'ok'}\n")
        name = static.INDEX if path == "/" else path.removeprefix(STATIC) if path.startswith(STATIC) else ""
        answer = self._files.answer(name, request)
        if answer is None:
            raise Problem(404, NOT_FOUND, "", "the dashboard is at ./")
        return answer

    async def _api(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        session = await self._access.who(request)
        if path == "me":
            return await self._me(session)
        if sentence := self._not_ready():
            raise Problem(503, NOT_READ, sentence, "it takes some seconds", headers={"Retry-After": "1"})
        if path == "snapshot":
            return self._snapshot(request)
        if path == "stream":
            return await self._streams.serve(request, session)
        return await self._page(request, session)

    async def _me(self, session: Session) -> web.Response:
        """With the names of namespaces whose pods this one may read."""
        numbers = dict(self._namespaces)
        allowed = await self._access.allowed(session, numbers)
        names = {str(number): name for name, number in numbers.items() if is_allowed(allowed, name)}
        return _json({
            "user": self._access.name(session), "mode": self._access.mode, "cluster": self._cluster,
            "version": gpushare.__version__, "everything": allowed is None, "program": "gpushare",
            "policies": list(POLICIES), "namespaces": names,
        })  # fmt: skip

    def _snapshot(self, request: web.BaseRequest) -> web.Response:
        etag, body = self._broadcast.snapshot_body()
        etag = f'"{etag.strip(chr(34))}"'
        headers = {"ETag": etag, "Vary": "Accept-Encoding", "Content-Type": JSON}
        if request.headers.get("If-None-Match", "").removeprefix("W/") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        if static.accepts_gzip(request):
            return web.Response(body=body, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=gzip.decompress(body), headers=headers)

    async def _page(self, request: web.BaseRequest, session: Session) -> web.Response:
        _, _, *named = map(unquote, request.rel_url.raw_parts)
        name, *parts = named or [""]  # a / that is written as %2F divides nothing
        page = self._pages.get(name)
        if page is None or page.method != request.method or len(parts) != page.parts:
            raise Problem(404, NOT_FOUND)
        body = await _posted(request) if page.method == "POST" else b""
        asked = Asked(tuple(parts), request.query, body)
        made = await page.make(asked, functools.partial(self._access.allowed, session))
        if made is None:
            raise Problem(404, NOT_FOUND)
        return _json(made)


async def _posted(request: web.BaseRequest) -> bytes:
    """A form of another site can send neither this header nor this type."""
    if request.headers.get(guard.MARK) != "1" or request.content_type != JSON:
        raise Problem(403, guard.WRONG_ORIGIN, f"it needs {guard.MARK}: 1 and Content-Type: {JSON}")
    return await request.read()


def _json(body: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type=JSON)


def _shape(path: str) -> str:
    """A path without names of other people's things, for the log."""
    return "/".join(path.split("/")[:3])[:40]
