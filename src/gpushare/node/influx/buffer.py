"""Points that are not written yet: bounded in time and in bytes, the oldest are dropped first.

Pure: the time comes in as an argument. What is taken out to be sent is given back if it could not be written.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

MOST_SECONDS: Final = 600.0
MOST_BYTES: Final = 8 << 20


class Entry(NamedTuple):
    """The lines of one moment."""

    at: float
    lines: tuple[bytes, ...]
    size: int  # in bytes, with a line break after each


def entry(at: float, lines: Sequence[bytes]) -> Entry:
    return Entry(at, tuple(lines), sum(map(len, lines)) + len(lines))


def halves(whole: Entry) -> tuple[Entry, Entry]:
    """Of an entry with at least two lines."""
    middle = len(whole.lines) // 2
    return entry(whole.at, whole.lines[:middle]), entry(whole.at, whole.lines[middle:])


class Buffer:
    """`points` and `dropped` count lines."""

    def __init__(self, most_seconds: float = MOST_SECONDS, most_bytes: int = MOST_BYTES) -> None:
        self.points = 0
        self.dropped = 0
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._most_seconds, self._most_bytes = most_seconds, most_bytes

    def add(self, new: Entry, now: float) -> None:
        self._entries.append(new)
        self._count(new, 1)
        self._drop(now)

    def take(self, most_bytes: int, now: float) -> list[Entry]:
        """The oldest, as many as have so many bytes together, at least one; empty if there is none."""
        self._drop(now)
        taken: list[Entry] = []
        size = 0
        while self._entries and (not taken or size + self._entries[0].size <= most_bytes):
            first = self._entries.popleft()
            self._count(first, -1)
            size += first.size
            taken.append(first)
        return taken

    def give_back(self, taken: Sequence[Entry], now: float) -> None:
        """In the order in which they were taken."""
        self._entries.extendleft(reversed(taken))
        for one in taken:
            self._count(one, 1)
        self._drop(now)

    def _drop(self, now: float) -> None:
        while self._entries and (self._bytes > self._most_bytes or now - self._entries[0].at > self._most_seconds):
            oldest = self._entries.popleft()
            self._count(oldest, -1)
            self.dropped += len(oldest.lines)

    def _count(self, one: Entry, sign: int) -> None:
        self.points += sign * len(one.lines)
        self._bytes += sign * one.size
