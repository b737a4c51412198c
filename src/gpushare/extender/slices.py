"""Long work beside the calls of schedulers: after each short step everybody else has a turn."""

import asyncio
from typing import TypeVar

from gpushare.core.steps import Steps

T = TypeVar("T")


async def by_and_by(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
