"""What a check says."""

from typing import NamedTuple

from gpushare.core.annotations.validation import State


class Verdict(NamedTuple):
    """`why`: what was found, or what is wrong. `way`: what to do; empty if nothing has to be done. Neither has a time
    in it that passes: both stand in an annotation, which is written when it changes."""

    state: State
    why: str = ""
    way: str = ""


def passed(why: str, *warnings: str) -> Verdict:
    return Verdict("passed", "; ".join((why, *filter(None, warnings))))


def failed(why: str, way: str) -> Verdict:
    return Verdict("failed", why, way)


def skipped(why: str) -> Verdict:
    return Verdict("skipped", why)


def waiting(why: str) -> Verdict:
    return Verdict("waiting", why)
