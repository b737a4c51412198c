"""Reads kubelet's two requests with ids directly from the bytes of the message.

Pure. protobuf's own reader makes a Python string of each id, up to 200,000, while kubelet waits. Ids of our length
stand in the message at equal distances, so a run of them is cut out as columns. Everything else in a message is read
field by field, as protobuf prescribes.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from gpushare.kubelet.unit_ids import LENGTH, Ids

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
STRIDE: Final = 2 + LENGTH  # tag, length, id
LONGEST_VARINT: Final = 10  # bytes
MOST_CONTAINERS: Final = 100
MOST_DEVICES: Final = (1 << 31) - 1  # an int32, as the message has it


class Malformed(ValueError):
    """Not a message of this kind."""


class Preferred(NamedTuple):
    """The question which of the available units one container shall get."""

    available: Ids
    must_include: Ids
    size: int


class _Field(NamedTuple):
    number: int
    kind: int
    value: int  # if it is a number
    start: int  # else where its bytes are
    end: int


def preferred(body: bytes) -> list[Preferred]:
    return [_preferred(body, field.start, field.end) for field in _containers(body)]


def allocate(body: bytes) -> list[Ids]:
    requests = (_collect(body, field.start, field.end) for field in _containers(body))
    return [ids.get(1, _Collected()).ids() for ids, _ in requests]


def _containers(body: bytes) -> list[_Field]:
    """kubelet asks for one at a time."""
    containers = list(islice((field for field in _fields(body, 0, len(body)) if _is(field, 1)), MOST_CONTAINERS + 1))
    if len(containers) > MOST_CONTAINERS:
        raise Malformed(f"it asks for more than {MOST_CONTAINERS} containers")
    return containers


def _preferred(body: bytes, start: int, end: int) -> Preferred:
    ids, numbers = _collect(body, start, end)
    size = numbers.get(3, 0)
    if size > MOST_DEVICES:
        raise Malformed("a negative size")
    return Preferred(ids.get(1, _Collected()).ids(), ids.get(2, _Collected()).ids(), size)


class _Collected:
    """The ids of one field, which may come in several pieces."""

    def __init__(self) -> None:
        self.runs: list[tuple[bytes, ...]] = []
        self.others: list[str] = []

    def ids(self) -> Ids:
        if len(self.runs) == 1:
            return Ids(self.runs[0], tuple(self.others))
        columns = tuple([b"".join([run[column] for run in self.runs]) for column in range(LENGTH)])
        return Ids(columns, tuple(self.others))


def _collect(body: bytes, start: int, end: int) -> tuple[dict[int, _Collected], dict[int, int]]:
    """All strings and all numbers of one container's request, by field."""
    ids: dict[int, _Collected] = {}
    numbers: dict[int, int] = {}
    at = start
    while at < end:
        run = _run(body, at, end)
        if run:
            collected = ids.setdefault(body[at] >> 3, _Collected())
            stop = at + STRIDE * run
            collected.runs.append(tuple([body[at + 2 + column : stop : STRIDE] for column in range(LENGTH)]))
            at = stop
            continue
        field = next(_fields(body, at, end))
        if field.kind == VARINT:
            numbers[field.number] = field.value
        elif field.kind == BYTES:
            ids.setdefault(field.number, _Collected()).others.append(_text(body, field))
        at = field.end
    return ids, numbers


def _run(body: bytes, at: int, end: int) -> int:
    """How many fields of the same tag, each a string of our length, begin here."""
    tag = body[at]
    if tag & 0x87 != BYTES or body[at + 1 : at + 2] != bytes([LENGTH]):
        return 0
    tags, lengths = body[at:end:STRIDE], body[at + 1 : end : STRIDE]
    alike = min(_leading(tags, tag), _leading(lengths, LENGTH))
    return min(alike, (end - at) // STRIDE)


def _leading(values: bytes, value: int) -> int:
    return len(values) - len(values.lstrip(bytes([value])))


def _fields(body: bytes, at: int, end: int) -> Iterator[_Field]:
    while at < end:
        tag, at = _varint(body, at, end)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise Malformed("a field without a number")
        if kind == VARINT:
            value, at = _varint(body, at, end)
            yield _Field(number, kind, value, at, at)
            continue
        if kind == BYTES:
            size, start = _varint(body, at, end)
        elif kind in (FIXED64, FIXED32):
            size, start = 8 if kind == FIXED64 else 4, at
        else:
            raise Malformed(f"a field of type {kind}")
        at = start + size
        if at > end:
            raise Malformed("it ends in the middle of a field")
        yield _Field(number, kind, 0, start, at)


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for place in range(LONGEST_VARINT):
        if at + place >= end:
            raise Malformed("it ends in the middle of a number")
        byte = body[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise Malformed("a number that is too long")


def _is(field: _Field, number: int) -> bool:
    return field.number == number and field.kind == BYTES


def _text(body: bytes, field: _Field) -> str:
    try:
        return body[field.start : field.end].decode()
    except UnicodeDecodeError:
        raise Malformed("an id that is not text") from None
