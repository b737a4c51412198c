"""Errors that a person can act on: what is wrong, why, and what to try.

Raised wherever the fault is the user's, the cluster's, the driver's or the network's. `cli` prints `render()` and ends
with `code`; a component in a pod logs the same three as one line, `log.error(error.what, **error.fields())`. A fault of
our own is any other exception.
"""

from typing import Final

BAD_INPUT: Final = 2
CLUSTER_NOT_ASKED: Final = 3  # nor the driver of this node
INTERRUPTED: Final = 130  # by Ctrl-C, as a shell reports it


class UserError(Exception):
    """`what` names the thing and its value, `why` the cause, `way` a command or flag that helps."""

    def __init__(self, what: str, why: str, way: str, code: int = BAD_INPUT) -> None:
        super().__init__(what, why, way, code)
        self.what, self.why, self.way = _one_line(what), _one_line(why), _one_line(way)
        self.code = code

    def __str__(self) -> str:
        return f"{self.what}: {self.why} (try: {self.way})"

    def render(self) -> str:
        """The three lines for a terminal, without a closing newline."""
        return f"error: {self.what}\n  why: {self.why}\n  try: {self.way}"

    def fields(self) -> dict[str, str]:
        """Cause and way out for a structured log line, under the names people know from the terminal."""
        return {"why": self.why, "try": self.way}


def not_asked(what: str, why: str, way: str) -> UserError:
    """An error with the exit code for a cluster, or a driver, that could not be asked."""
    return UserError(what, why, way, CLUSTER_NOT_ASKED)


def _one_line(text: str) -> str:
    # Causes are often other programs' words, or names out of a file: a line break in them must not look like a line of
    # ours, and no other character of control may move the reader's cursor.
    return "".join([character if character.isprintable() else "?" for character in " ".join(text.split())])
