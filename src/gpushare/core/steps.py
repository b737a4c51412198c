"""Long work in short steps: a generator that yields where others may have a turn, and returns what comes of it.

Pure. Whoever has nothing else to do takes all steps at once (`finish`); the extender lets its other calls in between.
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
