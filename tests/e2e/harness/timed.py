"""Proofs of time, which a busy machine can spoil: one that was too slow is repeated once, on its own.

Both figures are told, and the second one counts. Nothing else is ever repeated: whatever shows that something is wrong
fails at once, in the first run and in the second.
"""

import functools
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from tests.e2e.harness.figures import Figures

OVER = "TOO SLOW"


class TooSlow(AssertionError):
    """What was measured is over its limit; nothing else is wrong."""


class Renewable(Protocol):
    """A part of the cluster that can be emptied, and another one like it."""

    async def clean_up(self) -> None: ...
    def anew(self) -> AbstractAsyncContextManager[Any]: ...


W = TypeVar("W", bound=Renewable)
Proof = Callable[[W, Figures], Coroutine[Any, Any, None]]


def tell(figures: Figures, what: str, measured: str, *, in_time: bool) -> None:
    """Tells what was measured. The last thing a proof does, so that it was right before it is too slow."""
    figures.say(what, measured if in_time else f"{OVER}: {measured}")
    if not in_time:
        raise TooSlow(f"{what}: {measured}")


def repeated_once(proof: Proof[W]) -> Proof[W]:
    """For a test that ends with `tell`. The second run finds an empty cluster and a namespace of its own."""

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
