"""All checks of a node in their order: each needs those before it, so after a failure the others wait."""

from collections.abc import Iterable, Mapping
from typing import Final

from gpushare.core.annotations.validation import Check, Checks
from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict

WAITS: Final = "waits for {check}"
NEEDED: Final = ("passed", "skipped")  # states that let the checks after them begin


def blocked_by(before: Iterable[tuple[str, Verdict]]) -> str:
    """The first of these checks that keeps the next ones from beginning; empty: none does."""
    return next((check for check, said in before if said.state not in NEEDED), "")


def waits_for(check: str) -> Verdict:
    return verdict.waiting(WAITS.format(check=check))


def settled(before: Checks, said: Mapping[str, Verdict], now: str) -> Checks:
    """As the annotation has them. A state keeps its time while it lasts, also if its reason changes."""

    def since(check: str, state: str) -> str:
        return before[check].since if check in before and before[check].state == state else now

    return {name: Check(one.state, since(name, one.state), one.why, one.way) for name, one in said.items()}
