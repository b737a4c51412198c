"""The check with a pod: once after each change of what the node sells, and again later if it failed or was skipped."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

from gpushare.core.facts import intree, objects
from gpushare.kube.loop import Backoff
from gpushare.validate.rules import verdict
from gpushare.validate.rules.verdict import Verdict
from gpushare.validate.workload import room

AGAIN_SECONDS: Final = (5.0, 60.0)  # after a failure: the first and the longest pause
LOOK_SECONDS: Final = 60.0  # after it was skipped
UNDER_WAY: Final = "a pod is being tried"

Key = tuple[object, ...]


class Workload:
    """`run`: tries one pod. `done`: called when its verdict is there."""

    def __init__(
        self,
        run: Callable[[intree.Node], Awaitable[Verdict]],
        node: Callable[[], tuple[objects.Node | None, str]],
        done: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._node, self._done, self._clock = run, node, done, clock
        self._key: Key | None = None
        self._said: Verdict | None = None
        self._due = 0.0
        self._retry = Backoff(AGAIN_SECONDS)
        self._task: asyncio.Task[None] | None = None

    async def verdict(self) -> Verdict:
        node, _ = self._node()
        if node is None:
            return verdict.skipped(room.SAYS_NOTHING)
        key = _key(node)
        if key != self._key:
            self.blocked()
            self._key = key
        if self._task is None and (self._said is None or self._is_due(self._said)):
            self._task = asyncio.create_task(self._try(node))
        return self._said or verdict.waiting(UNDER_WAY)

    def blocked(self) -> None:
        """What was found is void: the node part was away, or something else has changed."""
        if self._task is not None:
            self._task.cancel()
        self._key = self._said = self._task = None
        self._retry.reset()

    async def end(self) -> None:
        """A pod that is being tried is deleted."""
        task = self._task
        self.blocked()
        if task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _is_due(self, said: Verdict) -> bool:
        return said.state != "passed" and self._clock() >= self._due

    async def _try(self, node: intree.Node) -> None:
        said = await self._run(node)
        self._said, self._task = said, None
        self._due = self._clock() + (LOOK_SECONDS if said.state == "skipped" else self._retry.delay())
        self._done()


def _key(node: objects.Node) -> Key:
    asks = room.asked(node)
    if asks is None:
        return ()
    return asks.resource, asks.facts.pin, tuple((gpu.uuid, gpu.healthy) for gpu in asks.facts.gpus)
