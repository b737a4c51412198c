"""Keys that people press while `gpushare top` runs: the terminal gives each at once, and does not show it.

The terminal is put back as it was at the end, however that comes. Where stdin is no terminal, there are no keys.
"""

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator

from gpushare.ctl.inspect.watch import Clock


class Keys(Clock):
    """A clock whose sleep ends with a key. `pressed` is that key; empty: none."""

    def __init__(self, fd: int | None) -> None:
        self._fd, self.pressed = fd, ""

    def sleep(self, seconds: float) -> None:
        self.pressed = ""
        if self._fd is None:
            time.sleep(seconds)
        elif select.select([self._fd], [], [], seconds)[0]:
            data = os.read(self._fd, 64)
            self.pressed = data[:1].decode("ascii", "ignore")
            if not data:  # the terminal is gone
                self._fd = None


@contextlib.contextmanager
def of_terminal() -> Iterator[Keys]:
    """Keys of the terminal on stdin."""
    try:
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
    except (OSError, ValueError, termios.error):
        yield Keys(None)
        return
    tty.setcbreak(fd)
    try:
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
