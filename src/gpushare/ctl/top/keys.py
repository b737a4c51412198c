"""Keys that people press while `gpushare top` runs: the terminal gives each at once, and does not show it.

The terminal is put back as it was at the end, however that comes. Where stdin is no terminal, there are no keys.
"""

import contextlib
import os
import select
import signal
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
            self.pressed = data[:1].decode("ascii", "replace")  # also a letter that is no key of ours is one
            if not data:  # the terminal is gone
                self._fd = None


@contextlib.contextmanager
def of_terminal() -> Iterator[Keys]:
    """Keys of the terminal on stdin. Only for who draws there: others may use it at the same time."""
    try:
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
    except (AttributeError, OSError, ValueError, termios.error):  # AttributeError: it was started without stdin
        yield Keys(None)
        return

    def put_back() -> None:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)

    def pause(number: int, frame: object) -> None:
        """Ctrl-Z: the shell gets the terminal as it was, and after `fg` keys come at once again."""
        put_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, pause)
        tty.setcbreak(fd, termios.TCSADRAIN)

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    tty.setcbreak(fd)
    handled = {number: signal.signal(number, act) for number, act in ((signal.SIGTSTP, pause), (signal.SIGTERM, end))}
    try:
        yield Keys(fd)
    finally:
        put_back()
        for number, act in handled.items():
            signal.signal(number, act)
