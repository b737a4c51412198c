"""Errors that a person can act on: what is wrong, why, and what to try.

Raised wherever the fault is the user's, the cluster's or the network's. `cli` prints `render()` and ends with `code`;
a component in a pod logs the same three as one line, `log.error(error.what, **error.fields())`. A fault of our own is
any other exception.
"""

from typing import Final

BAD_INPUT: Final = 2
CLUSTER_NOT_ASKED: Final = 3


class UserError(Exception):
    """`what` names the thing and its value, `why` the cause, `way` a command or flag that helps."""

    def __init__(self, what: str, why: str, way: str, code: int = BAD_INPUT) -> None:
        super().__init__(what)
        self.what, self.why, self.way = _one_line(what), _one_line(why), _one_line(way)
        self.code = code

    def render(self) -> str:
        """The three lines for a terminal, without a closing newline."""
        return f"error: {self.what}\n  why: {self.why}\n  try: {self.way}"

    def fields(self) -> dict[str, str]:
        """Cause and way out for a structured log line, under the names people know from the terminal."""
        return {"why": self.why, "try": self.way}


def _one_line(text: str) -> str:
    # Causes are often other programs' words: a line break in them must not look like a line of ours.
    return " ".join(text.split())
