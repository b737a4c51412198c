"""Counts, times and other people's text, as the commands write them for people.

Pure.
"""

from datetime import datetime


def age(created: str, now: float) -> str:
    """`41s`, `3m`, `5h`, `12d`: how old something is, as kubectl says it."""
    try:
        seconds = max(0, int(now - datetime.fromisoformat(created).timestamp()))
    except (ValueError, OverflowError):
        return "-"
    for size, letter, until in ((1, "s", 120), (60, "m", 120 * 60), (3600, "h", 48 * 3600)):
        if seconds < until:
            return f"{seconds // size}{letter}"
    return f"{seconds // 86400}d"


def number(amount: int) -> str:
    """A count of things, with commas from 10,000 on. Amounts of memory have none, as people write them in YAML."""
    return f"{amount:,}" if amount >= 10_000 else str(amount)


def count(amount: int, word: str) -> str:
    """`1 pod`, `2 pods`, `12,000 pods`."""
    return f"{number(amount)} {word}" if amount == 1 else f"{number(amount)} {word}s"


def duration(seconds: float) -> str:
    """How long something took or is ago: `8 s`, `2m10s`, `3h5m`, `12d4h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    for size, large, small, part in ((3600, "m", "s", 60), (86400, "h", "m", 3600)):
        if whole < size:
            rest = whole % part // (part // 60)
            return f"{whole // part}{large}{rest}{small}" if rest else f"{whole // part}{large}"
    rest = whole % 86400 // 3600
    return f"{whole // 86400}d{rest}h" if rest else f"{whole // 86400}d"


def timestamp(time: str) -> float:
    """Seconds since 1970 of a time as Kubernetes writes it; 0 if it is none."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def cells(text: str) -> int:
    """How many columns of a terminal a text without escapes takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    def one(character: str) -> int:
        if unicodedata.category(character) in ("Mn", "Me", "Cf"):
            return 0
        return 2 if unicodedata.east_asian_width(character) in "WF" else 1

    return sum(map(one, text))


def printable(text: str) -> str:
    """Without control characters: anybody may write an annotation, and it must not move the reader's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)
