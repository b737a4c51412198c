"""Long work in short steps: between two steps schedulers are answered."""

import asyncio
from typing import TypeVar

from gpushare.core.steps import Run, Steps

T = TypeVar("T")


async def in_slices(steps: Steps[T]) -> T:
    run = Run(steps)
    for _ in run:
        await asyncio.sleep(0)
    return run.result
