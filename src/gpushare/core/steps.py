"""Long work in short steps: a generator that yields after each step, and returns the result.

Pure. A command line takes all steps at once (`finish`). The extender answers schedulers between two steps.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """All steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
