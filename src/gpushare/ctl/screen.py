"""Where people read: width, colour and bars, decided once and the same for every command.

A `Screen` is made at the start by `Screen.of` and passed down, so that nothing else looks at the environment. Colour
never says what words do not, and piped output has neither colour nor bars.
"""

import os
from collections.abc import Mapping
from typing import Final, TextIO

from gpushare.ctl import streams

AUTO, ALWAYS, NEVER = "auto", "always", "never"
COLORS: Final = (AUTO, ALWAYS, NEVER)
USUAL_SIZE: Final = (80, 24)

_DIM, _RED, _PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[0m"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class Screen:
    """Two streams and what may be done on them. `width` None: stdout is no terminal; nothing is wrapped or cut."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        width: int | None = None,
        height: int | None = None,
        color: bool = False,
        utf8: bool = True,
        moves: bool = False,
    ) -> None:
        self.out, self.err = out, err
        self.width, self.height = width, height
        self.color = color  # bars as well
        self.utf8 = utf8
        self.moves = moves  # the cursor can be moved: redrawing in place works
        self.quiet = False  # while something is drawn in place, a line on stderr would break it

    @classmethod
    def of(cls, out: TextIO, err: TextIO, environ: Mapping[str, str], color: str = AUTO) -> "Screen":
        """The screen we were started on. `color`: what `--color` says."""
        terminal, smart = out.isatty(), environ.get("TERM") != "dumb"
        wanted = terminal and smart and not environ.get("NO_COLOR")
        width, height = _size(out) if terminal else (None, None)
        return cls(
            out,
            err,
            width=width,
            height=height,
            color=wanted if color == AUTO else color == ALWAYS,
            utf8=(out.encoding or "").lower().replace("-", "") == "utf8",
            moves=terminal and smart,
        )

    @property
    def terminal(self) -> bool:
        return self.width is not None

    def resized(self) -> bool:
        """Looks again how large the terminal is, and says whether that changed."""
        before = self.width, self.height
        if self.terminal:
            self.width, self.height = _size(self.out)
        return before != (self.width, self.height)

    def say(self, text: str) -> None:
        """The answer, on stdout."""
        streams.write(self.out, text if self.utf8 else text.encode("ascii", "replace").decode())

    def note(self, text: str) -> None:
        """What belongs to the answer but is not part of it, on stderr."""
        streams.remark(self.err, f"note: {text}\n")

    def waiting(self, text: str) -> None:
        """What is being waited for, on stderr."""
        if not self.quiet:
            streams.remark(self.err, f"{text}\n")

    def dim(self, text: str) -> str:
        return f"{_DIM}{text}{_PLAIN}" if self.color else text

    def red(self, text: str) -> str:
        return f"{_RED}{text}{_PLAIN}" if self.color else text

    def bar(self, part: int, whole: int, width: int) -> str:
        """As many of `width` cells as `part` is of `whole`, rounded down; empty without colour."""
        if not self.color or whole <= 0 or width <= 0:
            return ""
        share = min(max(part, 0), whole)
        if not self.utf8:
            return "#" * (share * width // whole)
        full, eighths = divmod(share * width * 8 // whole, 8)
        return "█" * full + (_EIGHTHS[eighths] if eighths else "")


def _size(out: TextIO) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return USUAL_SIZE
    return size.columns or USUAL_SIZE[0], size.lines or USUAL_SIZE[1]
