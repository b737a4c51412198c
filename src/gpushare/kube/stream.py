"""A watch's bytes as events.

Used by `client`. The API server sends one JSON object per line, in chunks of any size. A line may be megabytes (a pod
with 20,000 device ids is 845 KB), so pieces are collected and joined once, and never searched twice.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, NamedTuple, Protocol, TypeVar

import aiohttp

from gpushare.core.facts import objects
from gpushare.kube import answers, models

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
SILENT = "SILENT"  # ours: the API server has said nothing for a while


class Object(Protocol):
    """Whatever can be watched."""

    metadata: objects.Metadata


T = TypeVar("T", bound=Object)


class WatchEvent(NamedTuple, Generic[T]):
    type: str
    object: T | None  # None for a bookmark, and for silence
    resource_version: str


class Lines:
    """Whole lines out of pieces."""

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
    """Until the stream ends. A last line that is cut off is left out: whoever watches again gets it again.

    Nothing for `silence` seconds is an event as well: nobody can tell a quiet cluster from a dead connection here.
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
            yield _event(line, kind, where)
        await asyncio.sleep(0)  # buffered chunks come without waiting, and others must have their turn


def _event(line: bytes, kind: type[T], where: str) -> WatchEvent[T]:
    wire = answers.decode(line, models.WireEvent, where)
    if wire.type == ERROR:
        raise answers.error_event(wire.object, where)
    if wire.type == BOOKMARK:
        mark = answers.decode(wire.object, models.Versioned, where)
        return WatchEvent(wire.type, None, mark.metadata.resource_version)
    item = answers.decode(wire.object, kind, where)
    return WatchEvent(wire.type, item, item.metadata.resource_version)
