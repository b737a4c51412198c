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
SECONDS_IN = {"s": 1, "m": 60, "h": 3600}
NAMESPACE = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
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


def seconds(text: str) -> float:
    """`600`, `600s`, `10m` or `2h`."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in SECONDS_IN else (text, "s")
    if not (number.isascii() and number.isdecimal() and len(number) <= 6):
        why = "it is a number of seconds, or one with s, m or h"
        raise errors.UserError(f'"{text:.20}" is not a time to wait', why, "--patience 10m, or 0 for never")
    return float(int(number) * SECONDS_IN[unit])


def namespace(text: str | None, example: str = "--policy-namespace gpu") -> str:
    """The name of a namespace; empty if none is given."""
    if text is not None and not NAMESPACE.fullmatch(text):
        why = "it has small letters, digits and dashes, 63 at most"
        raise errors.UserError(f'"{text:.63}" is not the name of a namespace', why, example)
    return text or ""


class Parser(argparse.ArgumentParser):
    """For one command. `takes`: what it takes besides options; the error about a word too many names it."""

    def __init__(self, program: str, takes: str = "options only") -> None:
        super().__init__(prog=program, add_help=False, allow_abbrev=False)
        self._takes = takes

    @property
    def options(self) -> list[Sequence[str]]:
        """The spellings of each."""
        return [action.option_strings for action in self._actions]

    def error(self, message: str) -> NoReturn:
        match = re.fullmatch(r"argument (\S+): (expected .*)", message)
        what, why = (
            (f"{match[1]} needs a value", match[2]) if match else (message, "the command line is not understood")
        )
        raise errors.UserError(what, why, f"{self.prog} --help")

    def parse(self, words: Sequence[str], beside: "Parser | None" = None) -> argparse.Namespace:
        """The options, which may stand anywhere, also between other words. `beside`: of a command that is easily taken
        for this one."""
        self.add_argument("--kubeconfig")
        self.add_argument("--context")
        self.add_argument("--color", default="auto")
        self.add_argument("--debug", action="store_true")
        options, rest = self.parse_known_intermixed_args(words)
        for word in rest:
            if beside is not None and any(name(word) in spellings for spellings in beside.options):
                why = f"it is an option of {beside.prog}, not of {self.prog}"
                raise errors.UserError(f"unknown option {name(word)}", why, f"leave it out; {self.prog} --help")
            if word.startswith("-"):
                raise unknown_option(word, self.prog, self.options)
            raise errors.UserError(
                f'unexpected word "{word}"', f"{self.prog} takes {self._takes}", f"{self.prog} --help"
            )
        return options
