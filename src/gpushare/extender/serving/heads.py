"""Which requests are plain, told from their heads: as Go's HTTP client writes them, and nothing else.

Heads repeat: those of one scheduler differ in the path and in the length of the body. So what was read once is kept.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

LONGEST: Final = 1024  # bytes of a head
LARGEST: Final = 1 << 20  # bytes of a body; 5,000 names of nodes have a fifth of it
REMEMBERED: Final = 1000  # heads
FIELDS: Final = {b"host", b"user-agent", b"content-length", b"content-type", b"accept", b"accept-encoding"}
NEEDED: Final = {b"host", b"content-length"}

_FIELD = re.compile(rb"([A-Za-z-]+): ([!-~](?:[ -~]*[!-~])?)")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,6}")

Reply = Callable[[bytes], None]
Verb = Callable[[bytes, Reply], None]  # takes a body, and replies once, at once or later


class Plain(NamedTuple):
    """What a head says."""

    verb: Verb
    length: int  # bytes of the body


class Heads:
    """`verbs`: by path."""

    def __init__(self, verbs: Mapping[str, Verb]) -> None:
        self._verbs = {f"POST {path} HTTP/1.1".encode(): verb for path, verb in verbs.items()}
        self._known: dict[bytes, Plain] = {}

    def read(self, head: bytes) -> Plain | None:
        """Without the empty line at its end. None: this request is not plain."""
        plain = self._known.get(head)
        if plain is None:
            plain = self._read(head)
            if plain is not None:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[head] = plain
        return plain

    def _read(self, head: bytes) -> Plain | None:
        line, *lines = head.split(b"\r\n")
        verb = self._verbs.get(line)
        matches = [_FIELD.fullmatch(one) for one in lines]
        fields = {match[1].lower(): match[2] for match in matches if match is not None}
        if verb is None or len(fields) < len(lines) or not NEEDED <= fields.keys() <= FIELDS:
            return None
        length = fields[b"content-length"]
        if not _LENGTH.fullmatch(length) or int(length) >= LARGEST:
            return None
        return Plain(verb, int(length))
