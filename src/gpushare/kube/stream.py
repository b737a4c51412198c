"""Turns the bytes of a watch into events.

The API server sends one JSON object per line, in chunks of any size. A line may have megabytes (a pod with 20,000
device ids has 845 KB), so pieces are collected and joined once, and never searched twice.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import aiohttp
import msgspec

from gpushare.core.facts import objects
from gpushare.kube import answers, models

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
BACKLOG: Final = 16_384  # bytes at once: more may be there already
SILENT = "SILENT"  # our own: no event for a while


class Object(Protocol):
    """Any kind that can be watched."""

    @property
    def metadata(self) -> objects.Metadata: ...


T = TypeVar("T", bound=Object)


class WatchEvent(NamedTuple, Generic[T]):
    type: str
    object: T | None  # None for a bookmark, and for silence
    resource_version: str


class Lines:
    """Joins pieces to whole lines."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes. Empty ones are left out."""
        first, *rest = chunk.split(b"\n")
        self._pieces.append(first)
        if not rest:
            return []
        whole = b"".join(self._pieces)
        self._pieces = [rest.pop()]
        return [line for line in (whole, *rest) if line]


async def events(
    content: aiohttp.StreamReader, kind: type[T], where: str, silence: float, limit: float
) -> AsyncGenerator[WatchEvent[T], None]:
    """Until the stream ends. An incomplete last line is dropped: the next watch brings it again.

    `silence` seconds without an event are an event as well, because a quiet cluster and a dead connection look the same
    here.
    """
    lines = Lines()
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await content.readany()
        except TimeoutError:
            yield WatchEvent(SILENT, None, "")
            continue
        except (aiohttp.ClientError, OSError) as error:
            raise answers.unreachable(error, limit) from error
        if not chunk:
            return
        for line in lines.feed(chunk):
            yield decoded(line, kind, where)
        if len(chunk) > BACKLOG:
            await asyncio.sleep(0)  # what is buffered comes without waiting; other tasks must run, too


def decoded(line: bytes, kind: type[T], where: str) -> WatchEvent[T]:
    """One line as an event; ERROR is raised."""
    try:
        event: models.EventOf[T] = _line(kind).decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decoded_in_steps(line, kind, where)  # not an object of that kind
    if event.type == ERROR:
        return _decoded_in_steps(line, kind, where)
    item = None if event.type == BOOKMARK else event.object
    return WatchEvent(event.type, item, event.object.metadata.resource_version)


@functools.cache
def _line(kind: type) -> msgspec.json.Decoder[Any]:
    """For the usual lines: to read the object apart from the rest takes twice as long."""
    return msgspec.json.Decoder(models.EventOf[kind])  # type: ignore[valid-type]


def _decoded_in_steps(line: bytes, kind: type[T], where: str) -> WatchEvent[T]:
    """First what is said about the object: that says what it is."""
    wire = answers.decode(line, models.WireEvent, where)
    if wire.type == ERROR:
        raise answers.error_event(wire.object, where)
    if wire.type == BOOKMARK:
        mark = answers.decode(wire.object, models.Versioned, where)
        return WatchEvent(wire.type, None, mark.metadata.resource_version)
    item = answers.decode(wire.object, kind, where)
    return WatchEvent(wire.type, item, item.metadata.resource_version)
