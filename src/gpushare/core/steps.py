"""Long work in short steps: a generator that yields after each step, and returns the result.

Pure. A command line takes all steps at once (`finish`). The extender answers schedulers between two steps.
"""

from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]


class Run(Generic[T]):
    """One run through the steps, for a `for` loop. Afterwards there is `result`."""

    result: T

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[None]:
        self.result = yield from self._steps


def finish(steps: Steps[T]) -> T:
    """All steps at once."""
    run = Run(steps)
    for _ in run:
        pass
    return run.result
