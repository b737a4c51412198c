"""What all HTTP requests and answers have in common: bodies have a limit, answers are JSON or a table."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from gpushare.devcluster.apiserver import listing, status
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object
from gpushare.devcluster.apiserver.tables import printing

BODY_LIMIT: Final = 3 * 1024 * 1024  # as a real server
JSON: Final = "application/json"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
OPENAPI_V2: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPENAPI_V2_ASKED: Final = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"  # not a valid media type, but kubectl's
)
NO_TRIAL: Final = "dryRun, but for creating,"
_AS_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def body(request: web.BaseRequest) -> bytes:
    if request.content_type == PROTOBUF:
        raise status.no_protobuf()
    content = bytearray()
    async for chunk in request.content.iter_any():
        content += chunk
        if len(content) > BODY_LIMIT:
            raise status.too_big(BODY_LIMIT)
    return bytes(content)


def decode(body: bytes, kind: str) -> Any:
    try:
        obj = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind}): {error}") from error
    if not isinstance(obj, dict):
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind}): not an object")
    return obj


def delete_options(request: web.BaseRequest, body: bytes) -> Object:
    options: Object = decode(body, "DeleteOptions") if body else {}
    if options.get("dryRun"):
        raise status.not_supported(NO_TRIAL)
    if "gracePeriodSeconds" in request.query and not body:
        options["gracePeriodSeconds"] = int(listing.number(request.query, "gracePeriodSeconds"))
    if "propagationPolicy" in request.query and not body:
        options["propagationPolicy"] = request.query["propagationPolicy"]
    return options


def whole(code: int, kind: Kind, data: bytes) -> web.Response:
    """A stored object, or a Status in its place."""
    body = data if data.startswith(b'{"kind"') else kind.head + data[1:]
    return web.Response(status=code, body=body + b"\n", content_type=JSON)


def reply(code: int, body: Mapping[str, Any]) -> web.Response:
    return web.Response(status=code, body=msgspec.json.encode(body) + b"\n", content_type=JSON)


def tail(request: web.BaseRequest, text: str) -> str:
    """As many lines of a log as were asked for."""
    lines = text.splitlines(keepends=True)
    count = listing.number(request.query, "tailLines") if "tailLines" in request.query else len(lines)
    return "".join(lines[max(0, len(lines) - count) :])


def rows(request: web.BaseRequest, kind: Kind, now: Callable[[], float]) -> "Rows | None":
    """Makes tables for this client; None if it wants objects."""
    wanted = _AS_TABLE in request.headers.get("Accept", "").replace(" ", "")
    return Rows(kind, request.query.get("includeObject", ""), now) if wanted else None


class Rows:
    """Makes tables for one request. In a watch only the first names its columns."""

    def __init__(self, kind: Kind, include: str, now: Callable[[], float]) -> None:
        self._kind, self._include, self._now = kind, include, now
        self._headers = True

    def table(self, objects: list[Object], metadata: Object) -> bytes:
        shown = printing.table(
            self._kind, objects, self._now(), metadata=metadata, include=self._include, headers=self._headers
        )
        self._headers = False
        return msgspec.json.encode(shown)

    def one(self, data: bytes) -> bytes:
        """A table of one stored object."""
        obj: Object = msgspec.json.decode(data)
        return self.table([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
