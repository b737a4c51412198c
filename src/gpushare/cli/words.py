"""From words on a line to options, and what is said about words that are not understood.

argparse does the reading; its own errors are replaced by ours: what, why, and what to try.
"""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

from gpushare.obs import errors

OF_EVERY_COMMAND = ("--kubeconfig", "--context", "--color")  # with a value, before or after the command
SWITCHES = ("--debug", "--version", "-h", "--help")


def command_at(words: Sequence[str]) -> int | None:
    """Where the command stands: the first word that is neither an option nor its value."""
    for at, word in enumerate(words):
        if not word.startswith("-") and (at == 0 or words[at - 1] not in OF_EVERY_COMMAND):
            return at
    return None


def unknown(what: str, given: str, known: Sequence[str], way: str, *, otherwise: str = "") -> errors.UserError:
    spelled = {name.lower(): name for name in known}
    close = [spelled[name] for name in difflib.get_close_matches(given.lower(), spelled, n=1)]
    plural = what.removesuffix("y") + "ies" if what.endswith("y") else what + "s"
    best = otherwise if otherwise and not close else way.format((close or known)[0])
    return errors.UserError(f'unknown {what} "{given}"', f"{plural}: {', '.join(known)}", best)


def unknown_option(word: str, program: str, groups: Sequence[Sequence[str]]) -> errors.UserError:
    """`groups`: the spellings of each option that there is."""
    known = [spelling for group in groups for spelling in group]
    meant = difflib.get_close_matches(name(word), known, n=1)
    close = [spelling for group in groups if set(group) & set(meant) for spelling in group]
    way = f"{program} {close[0]}; all options: {program} --help" if close else f"{program} --help"
    return errors.UserError(f"unknown option {name(word)}", f"{program} knows {', '.join(close or known)}", way)


def name(option: str) -> str:
    return option.partition("=")[0]


class Parser(argparse.ArgumentParser):
    """Of one command. `takes`: what it takes besides options, for the error about a word too many."""

    def __init__(self, program: str, takes: str = "options only") -> None:
        super().__init__(prog=program, add_help=False, allow_abbrev=False)
        self._takes = takes

    def error(self, message: str) -> NoReturn:
        found = re.fullmatch(r"argument (\S+): (expected .*)", message)
        what, why = (f"{found[1]} needs a value", found[2]) if found else (message, "the line is not understood")
        raise errors.UserError(what, why, f"{self.prog} --help")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Options may stand anywhere, between other words, too."""
        self.add_argument("--kubeconfig")
        self.add_argument("--context")
        self.add_argument("--color", default="auto")
        self.add_argument("--debug", action="store_true")
        given, rest = self.parse_known_intermixed_args(words)
        for word in rest:
            if word.startswith("-"):
                raise unknown_option(word, self.prog, [action.option_strings for action in self._actions])
            raise errors.UserError(
                f'unexpected word "{word}"', f"{self.prog} takes {self._takes}", f"{self.prog} --help"
            )
        return given
