"""Tests of how long something takes. A busy machine can spoil them, so one that was too slow is repeated once.

Both figures are printed, and the second one counts. Nothing else is ever repeated: any other failure counts at once, in
the first run and in the second.
"""

import functools
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import pytest

from tests.e2e.harness.figures import Figures

OVER = "TOO SLOW"


class TooSlow(AssertionError):
    """The measured time is over its limit; nothing else is wrong."""


class Renewable(Protocol):
    """A world that can be replaced by an empty one."""

    async def clean_up(self) -> None: ...
    def anew(self) -> AbstractAsyncContextManager[Any]: ...


W = TypeVar("W", bound=Renewable)
Proof = Callable[[W, Figures], Coroutine[Any, Any, None]]


def tell(figures: Figures, what: str, measured: str, *, in_time: bool) -> None:
    """Prints what was measured. Call it last, so that everything else has been checked before."""
    figures.say(what, measured if in_time else f"{OVER}: {measured}")
    if not in_time:
        raise TooSlow(f"{what}: {measured}")


def repeated_once(proof: Proof[W]) -> Proof[W]:
    """For a test that ends with `tell`. No other lane runs meanwhile. The second run finds an empty cluster and a
    namespace of its own."""

    @pytest.mark.alone
    @functools.wraps(proof)
    async def run(world: W, figures: Figures) -> None:
        try:
            await proof(world, figures)
        except TooSlow as slow:
            print(f"repeated once: {slow}")
        else:
            return
        await world.clean_up()
        async with world.anew() as again:
            await proof(again, figures)

    return run
