"""Turns the bytes and failures of HTTP into objects and the errors of this folder.

Sentences here are short and never quote a body: they end up in logs and on terminals.
"""

import functools
import os
import ssl
from collections.abc import Hashable
from typing import Any, TypeVar, cast

import aiohttp
import msgspec

from gpushare.kube import models
from gpushare.kube.errors import ApiError, Malformed, Unreachable

T = TypeVar("T")

LONGEST = 500  # characters of an API server's message that are kept

_STATUS = msgspec.json.Decoder(models.Status)


@functools.cache
def decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    """Built once per type: building one costs more than decoding a pod with it."""
    return msgspec.json.Decoder(cast(type, kind))


def decode(body: bytes | msgspec.Raw, kind: type[T], where: str) -> T:
    try:
        decoded: T = decoder(cast(Hashable, kind)).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"{where}: {error}") from None
    return decoded


def refusal(code: int, phrase: str | None, retry_after: str | None, body: bytes) -> ApiError:
    """The refusal that the API server, or a proxy before it, answered."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = models.Status()
    wait = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return _api_error(status, code, phrase or "", wait)


def error_event(body: msgspec.Raw, where: str) -> ApiError:
    """The refusal in an ERROR event of a watch."""
    return _api_error(decode(body, models.Status, where), 500, "", None)


def _api_error(status: models.Status, code: int, phrase: str, wait: float | None) -> ApiError:
    if wait is None and status.details and status.details.retry_after_seconds:
        wait = float(status.details.retry_after_seconds)
    return ApiError(status.code or code, status.reason or phrase, (status.message or "")[:LONGEST], wait)


def unreachable(error: Exception, limit: float) -> Unreachable:
    """The failure in a few words, and whether the request may have been carried out. If that is not sure, it may."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return Unreachable(f"no such host: {error.host}", sent=False)
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
            return Unreachable(f"its certificate is not trusted: {why}", sent=False)
        case aiohttp.ClientConnectorError(os_error=ssl.SSLError() as failure):
            why = (failure.reason or "handshake failed").lower().replace("_", " ")
            return Unreachable(f"no TLS connection: {why}", sent=False)
        case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))):
            return Unreachable(os.strerror(number).lower(), sent=False)
        case aiohttp.ClientConnectorError():
            return Unreachable("no connection", sent=False)
        case aiohttp.ConnectionTimeoutError():
            return Unreachable(f"no connection within {limit / 2:g} s", sent=False)
        case aiohttp.ClientHttpProxyError():
            return Unreachable(f"the proxy refuses: {error.status}", sent=False)
        case aiohttp.InvalidURL() | UnicodeError():
            return Unreachable("not a usable address", sent=False)
        case TimeoutError():
            return Unreachable(f"no answer within {limit:g} s", sent=True)
        case _:
            return Unreachable("the connection was lost", sent=True)
