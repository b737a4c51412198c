"""The bytes and the text of a file that somebody named. Never more than a bounded part of it is read."""

from pathlib import Path
from typing import Final

from gpushare.obs.errors import UserError

MOST_BYTES: Final = 256 << 20  # of one file
FIRST_BYTES: Final = 1 << 16  # enough to see that it is no text


def text(name: str, most: int = MOST_BYTES) -> str:
    """A text file as a whole."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(FIRST_BYTES)
            if b"\0" not in data:
                data += file.read(max(most + 1 - len(data), 0))
    except OSError as error:
        raise unreadable(name, error) from None
    if b"\0" in data:
        raise UserError(f"{name} is not a text file", "it has bytes of zero", "name a CSV or JSON file")
    if len(data) > most:
        why = f"it is larger than {most >> 20} MiB"
        raise UserError(f"{name} is too large to be a trace", why, "replay a part of it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name} is not a text file", f"row {row} is not UTF-8", "name a CSV or JSON file") from None


def unreadable(name: str, error: OSError) -> UserError:
    why = (error.strerror or str(error)).lower()
    return UserError(f"{name} cannot be read", why, "name a file that exists and that you may read")
