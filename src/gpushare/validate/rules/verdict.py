"""What a check says."""

from typing import Final, NamedTuple

from gpushare.core.annotations.validation import State

LONGEST: Final = 1000  # characters of a reason: runtimes and webhooks may say much, and an annotation is not a log


class Verdict(NamedTuple):
    """`why`: what was found, or what is wrong. `way`: what to do; empty if nothing has to be done. Neither has a time
    in it that passes: both stand in an annotation, which is written when it changes."""

    state: State
    why: str = ""
    way: str = ""


def passed(why: str, *warnings: str) -> Verdict:
    return Verdict("passed", _short("; ".join((why, *filter(None, warnings)))))


def failed(why: str, way: str) -> Verdict:
    return Verdict("failed", _short(why), way)


def skipped(why: str) -> Verdict:
    return Verdict("skipped", why)


def waiting(why: str) -> Verdict:
    return Verdict("waiting", why)


def _short(why: str) -> str:
    return why if len(why) <= LONGEST else why[: LONGEST - 1] + "…"
