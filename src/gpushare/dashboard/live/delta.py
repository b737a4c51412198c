"""All rows as one snapshot, and what changed between two states of rows as one message. Pure.

A snapshot is columns of equal length: nodes by name, GPUs in the order of nodes, shares in the order of GPUs. A message
has differences of those GPUs that changed, because small numbers are short. For the same reason ids and numbers of pods
are differences to the one before, in both; and `free` of a snapshot is the difference to what is not granted, which
is nearly always 0. Both are JSON.
"""

import base64
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpushare.dashboard.live.columns import PINS, Figures, Row, Tables

VERSION = 1
LEVEL = 9  # of compression: a message is made once, and sent to everybody

Json = dict[str, Any]


def whole(rows: Sequence[Row], tables: Tables, now: float) -> Json:
    """The columns of a snapshot. `rows`: by name."""
    gpus = [gpu for row in rows for gpu in row.gpus]
    none: Sequence[int] = ()
    figures = dict.fromkeys(Figures._fields, none)
    said = [one for row in rows for one in row.figures]
    figures |= dict(zip(Figures._fields, zip(*said, strict=True), strict=False))
    shares = [there for row in rows for there in row.shares]
    return {
        "tables": {"models": tables.models.words(), "zones": tables.zones.words(), "pins": PINS},
        "nodes": {
            "id": _gaps([row.id for row in rows]),
            "name": [row.name for row in rows],
            "unit": [row.unit for row in rows],
            "pin": [row.pin for row in rows],
            "zone": [row.zone for row in rows],
            "state": [row.state for row in rows],
            "gpus": [len(row.gpus) for row in rows],
            "age": [row.age(now) for row in rows],
            "sold": [row.sold for row in rows],
        },
        "gpus": {
            "id": _gaps([gpu.id for gpu in gpus]),
            "index": [gpu.index for gpu in gpus],
            "model": [gpu.model for gpu in gpus],
            "total": [gpu.total for gpu in gpus],
            **figures,
            "free": [one.free - (gpu.total - one.granted) for gpu, one in zip(gpus, said, strict=True)],
            "shares": [len(there) for there in shares],
        },
        "shares": {
            "pod": _gaps([share[0] for there in shares for share in there]),
            "ns": [share[1] for there in shares for share in there],
            "granted": [share[2] for there in shares for share in there],
        },
        "unplaced": sum(row.unplaced for row in rows),
    }


def is_other_shape(before: Row | None, now: Row | None) -> bool:
    """Whether a message of differences cannot say what changed: nodes or GPUs came or went."""
    if before is None or now is None:
        return before is not now
    return before.gpus != now.gpus


def changes(pairs: Iterable[tuple[Row, Row]], now: float) -> Json:
    """What is different in these rows of the same shape, as keys of a message."""
    gpus: list[tuple[int, list[int]]] = []
    nodes: Json = {}
    shares: Json = {}
    for before, after in pairs:
        if fields := _node_fields(before, after, now):
            nodes[str(after.id)] = fields
        if before.figures != after.figures:
            rows = zip(after.gpus, before.figures, after.figures, strict=True)
            gpus += [(gpu.id, [b - a for a, b in zip(old, new, strict=True)]) for gpu, old, new in rows if old != new]
        if before.shares != after.shares:
            both = zip(after.gpus, before.shares, after.shares, strict=True)
            shares |= {str(gpu.id): new for gpu, old, new in both if old != new}
    found: Json = {"g": _columns(gpus)} if gpus else {}
    return found | ({"s": shares} if shares else {}) | ({"n": nodes} if nodes else {})


def _node_fields(before: Row, after: Row, now: float) -> Json:
    names = ("unit", "pin", "zone", "state", "sold")
    fields = {name: getattr(after, name) for name in names if getattr(before, name) != getattr(after, name)}
    return fields | ({"age": after.age(now)} if before.sampled != after.sampled else {})


def _columns(gpus: list[tuple[int, list[int]]]) -> Json:
    """Ascending ids as differences to the one before; a column of zeros only is left out."""
    gpus.sort()
    columns: Json = {"id": _gaps([number for number, _ in gpus])}
    for name, column in zip(Figures._fields, zip(*[differences for _, differences in gpus], strict=True), strict=True):
        if any(column):
            columns[name] = column
    return columns


def _gaps(numbers: Sequence[int]) -> list[int]:
    return [after - before for before, after in zip((0, *numbers), numbers, strict=False)]


def encoded(message: Json) -> bytes:
    """As the data of an event: raw deflate, then base64."""
    squeezer = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(squeezer.compress(msgspec.json.encode(message)) + squeezer.flush())
