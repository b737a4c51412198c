"""From the words of a command line to options, and the errors for words that are not understood.

argparse reads them; its errors are replaced by ours, which say what, why, and what to try.
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
    """The position of the command: the first word that is neither an option nor the value of one."""
    for at, word in enumerate(words):
        if not word.startswith("-") and (at == 0 or words[at - 1] not in OF_EVERY_COMMAND):
            return at
    return None


def unknown(what: str, word: str, known: Sequence[str], way: str, *, otherwise: str = "") -> errors.UserError:
    spelled = {name.lower(): name for name in known}
    close = [spelled[name] for name in difflib.get_close_matches(word.lower(), spelled, n=1)]
    plural = what.removesuffix("y") + "ies" if what.endswith("y") else what + "s"
    best = otherwise if otherwise and not close else way.format((close or known)[0])
    return errors.UserError(f'unknown {what} "{word}"', f"{plural}: {', '.join(known)}", best)


def unknown_option(word: str, program: str, groups: Sequence[Sequence[str]]) -> errors.UserError:
    """`groups`: the spellings of each option."""
    known = [spelling for group in groups for spelling in group]
    meant = difflib.get_close_matches(name(word), known, n=1)
    close = [spelling for group in groups if set(group) & set(meant) for spelling in group]
    way = f"{program} {close[0]}; all options: {program} --help" if close else f"{program} --help"
    return errors.UserError(f"unknown option {name(word)}", f"{program} knows {', '.join(close or known)}", way)


def name(option: str) -> str:
    return option.partition("=")[0]


class Parser(argparse.ArgumentParser):
    """For one command. `takes`: what it takes besides options; the error about a word too many names it."""

    def __init__(self, program: str, takes: str = "options only") -> None:
        super().__init__(prog=program, add_help=False, allow_abbrev=False)
        self._takes = takes

    def error(self, message: str) -> NoReturn:
        match = re.fullmatch(r"argument (\S+): (expected .*)", message)
        what, why = (
            (f"{match[1]} needs a value", match[2]) if match else (message, "the command line is not understood")
        )
        raise errors.UserError(what, why, f"{self.prog} --help")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The options, which may stand anywhere, also between other words."""
        self.add_argument("--kubeconfig")
        self.add_argument("--context")
        self.add_argument("--color", default="auto")
        self.add_argument("--debug", action="store_true")
        options, rest = self.parse_known_intermixed_args(words)
        for word in rest:
            if word.startswith("-"):
                raise unknown_option(word, self.prog, [action.option_strings for action in self._actions])
            raise errors.UserError(
                f'unexpected word "{word}"', f"{self.prog} takes {self._takes}", f"{self.prog} --help"
            )
        return options
