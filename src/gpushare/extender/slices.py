"""Long work in short steps: between two steps schedulers are answered."""

import asyncio
from typing import TypeVar

from gpushare.core.steps import Steps

T = TypeVar("T")


async def in_slices(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
