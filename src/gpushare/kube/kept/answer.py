"""Reads the answer to a short write, from all bytes of it that have come.

Strict: what an API server does not send is `Odd`, and whoever sent the request knows no more than that it was sent.
"""

import functools
import re
from typing import Final, NamedTuple

LARGEST: Final = 1 << 20  # bytes of an answer
END: Final = b"\r\n"
REMEMBERED: Final = 128  # bytes of a line, and lines: most are the same in every answer
ONCE: Final = (b"content-length", b"transfer-encoding", b"connection")  # fields that tell where an answer ends

_STATUS = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9])(?: ([ -~]*))?")
_FIELD = re.compile(rb"([!#-'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\x00]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,7}")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,6}")


class Odd(Exception):
    """Not an answer as an API server writes it."""


class Answer(NamedTuple):
    status: int
    reason: str
    fields: dict[bytes, bytes]  # by name in small letters
    body: bytes

    @property
    def is_last(self) -> bool:
        """The connection must not be used again."""
        return b"close" in self.fields.get(b"connection", b"").lower()

    def field(self, name: bytes) -> str:
        """Empty if it is missing."""
        return self.fields.get(name, b"").decode("latin-1")


def read(data: bytes) -> Answer | None:
    """None: more has to come. Raises Odd, also if there is more than one answer."""
    if len(data) > LARGEST:
        raise Odd
    head, end, rest = data.partition(END + END)
    if not end:
        return None
    line, *lines = head.split(END)
    status, fields = _STATUS.fullmatch(line), _fields(lines)
    if status is None:
        raise Odd
    body = _body(fields, rest)
    return None if body is None else Answer(int(status[1]), (status[2] or b"").decode(), fields, body)


def _fields(lines: list[bytes]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for line in lines:
        field = _known_field(line) if len(line) <= REMEMBERED else _field(line)
        if field is None:
            raise Odd
        name, value = field
        if name in fields and name in ONCE:
            raise Odd
        fields[name] = value
    return fields


def _field(line: bytes) -> tuple[bytes, bytes] | None:
    """Its name in small letters, and its value. None: this is no field."""
    match = _FIELD.fullmatch(line)
    return (match[1].lower(), match[2]) if match is not None else None


_known_field = functools.lru_cache(REMEMBERED)(_field)


def _body(fields: dict[bytes, bytes], data: bytes) -> bytes | None:
    length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
    if coding is not None:
        if coding.lower() != b"chunked" or length is not None:
            raise Odd
        return _chunks(data)
    if length is None or not _LENGTH.fullmatch(length) or len(data) > int(length):
        raise Odd
    return data if len(data) == int(length) else None


def _chunks(data: bytes) -> bytes | None:
    body, at = [], 0
    while True:
        line, end, _ = data[at : at + 8].partition(END)
        if not end:
            if len(data) >= at + 8:
                raise Odd
            return None
        if not _SIZE.fullmatch(line):
            raise Odd
        begin, size = at + len(line) + len(END), int(line, 16)
        at = begin + size + len(END)
        if len(data) < at:
            return None
        if data[begin + size : at] != END:
            raise Odd  # also fields after the last chunk
        body.append(data[begin : begin + size])
        if size == 0:
            if len(data) > at:
                raise Odd
            return b"".join(body)
