"""stdout and stderr as a shell may pass them on: closed (`>&-`), full, or a pipe that nobody reads any more.

stdout carries the answer: if it cannot be written, the user is told. stderr carries notes and errors: if those cannot
be written, the exit code still says how it ended. In both cases the stream is then sent to /dev/null. Otherwise Python
tries to write the same text again when it exits, prints a trace of its own, and ends with code 120.
"""

import contextlib
import errno
import io
import os
import sys
from typing import Final, TextIO

from gpushare.obs.errors import UserError

NOT_WRITTEN: Final = "the answer cannot be written to stdout"
CLOSED: Final = "stdout is closed"
ANOTHER_PLACE: Final = "send it to another place: > FILE"


class ReaderGone(Exception):
    """The program that reads our stdout has ended, as `head -1` does."""


def reopen() -> None:
    """Replaces the streams that the shell has closed: Python has none there, and the next file opened would get their
    number."""
    if sys.stdin is None:
        sys.stdin = _opened("r", os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = _opened("w", os.O_RDONLY)  # every write fails, so the user learns that there is no answer
    if sys.stderr is None:
        sys.stderr = _opened("w", os.O_WRONLY)


def write(out: TextIO, text: str) -> None:
    """Writes a part of the answer, or raises ReaderGone or a UserError."""
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        _discard(out)
        raise ReaderGone from None
    except OSError as error:
        _discard(out)
        why = CLOSED if error.errno == errno.EBADF else (error.strerror or str(error)).lower()
        # Bad input, exit code 2: code 1 would be an answer ("does not fit", "a check failed").
        raise UserError(NOT_WRITTEN, why, ANOTHER_PLACE) from None


def remark(err: TextIO, text: str) -> None:
    """Writes a note or an error, if that is possible."""
    try:
        err.write(text)
        err.flush()
    except OSError:
        _discard(err)


def finish() -> None:
    """Leaves nothing for Python to write at its end, also of what others have written, as the log does."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _discard(stream)


def _opened(mode: str, access: int) -> TextIO:
    file = io.FileIO(os.devnull, mode, opener=lambda path, _: os.open(path, access))
    return io.TextIOWrapper(file, encoding="utf-8")


def _discard(stream: TextIO) -> None:
    """What is written to the stream from now on, and what it still holds, goes nowhere."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
