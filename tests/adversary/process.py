"""The extender of a life: the real one, all of `app.Extender`, on the life's server and in its time.

Nothing is wired here a second time: what `app` makes runs, reflectors included. Only HTTP is left out; verbs get the
bytes that a scheduler would send. `virtual_time` puts the life's clock where the code would read the machine's.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

from gpushare.core.facts.model import Unit
from gpushare.extender import app, housekeeping, wire
from gpushare.extender.background import learning
from gpushare.extender.binder import Binder
from gpushare.kube.events import Recorder
from gpushare.kube.reflector import Reflector
from tests.adversary.connection import Connection
from tests.adversary.server import Object, Server

TICK = 0.5  # seconds between two looks at what ends by time; the extender's own is shorter, and many lives are long
MOST_CALLS = 600_000  # functions called within one verb: about twice what 25 CPU-ms buy, on every machine the same


class TooDear(Exception):
    """One call was about to take the extender from everybody."""


@contextmanager
def virtual_time(clock: Callable[[], float]) -> Iterator[None]:
    """Everything that reads a clock by default reads this one; nothing is left to chance or to the collector."""
    patched: list[Any] = [
        mock.patch.object(app, "time", SimpleNamespace(monotonic=clock, time=clock)),
        mock.patch.object(app, "LOOK_SECONDS", TICK),
        mock.patch.object(housekeeping, "time", SimpleNamespace(monotonic=clock, time=clock)),
        mock.patch.object(housekeeping, "TICK", TICK),
        mock.patch.object(learning, "time", SimpleNamespace(monotonic=clock)),
        mock.patch.object(app, "START_SECONDS", float("inf")),  # else it ends, and kubelet starts another
        # `start` freezes what stays for the life of a process; here thousands of extenders come and go.
        mock.patch.object(app, "gc", mock.Mock()),
    ]
    defaults: list[tuple[Any, dict[str, object]]] = [
        (Reflector, {"clock": clock, "chance": lambda: 0.5}),
        (Recorder, {"clock": clock, "now": clock}),
        (Binder, {"clock": clock, "nanoseconds": lambda: int(clock() * 1e9)}),
    ]
    patched += [mock.patch.dict(kind.__init__.__kwdefaults__, given) for kind, given in defaults]
    for patch in patched:
        patch.start()
    try:
        yield
    finally:
        for patch in patched:
            patch.stop()


class Process:
    """One process of the extender, from its start to its sudden death."""

    def __init__(self, server: Server, policy: str, unit: Unit | None) -> None:
        self.connection = Connection(server)
        self.extender = app.Extender(app.Config("127.0.0.1", [], policy, unit, None), self.connection)
        self.tasks = self.extender.start()

    async def kill(self) -> None:
        """As kill -9: what has reached the API server counts, nothing else."""
        self.connection.cut_off = True
        await self.extender.binder.finish(0)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def failure(self) -> str:
        """Why something that should run for ever has ended; empty if all is well."""
        for task in self.tasks:
            if task.done():
                return f"a part of the extender ended: {task.exception()!r}"
        return ""

    def ask(self, verb: str, body: Object) -> Any:
        """One call of a scheduler, with a limit to what it may cost."""
        answer = metered(lambda: getattr(self.extender.verbs, verb)(json.dumps(body).encode()), verb)
        return json.loads(answer)

    async def bind(self, pod: Object, node: str) -> str:
        meta = pod["metadata"]
        args = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        return await self.extender.binder.bind(wire.read_bind(json.dumps(args).encode()))

    def free(self, node: str) -> dict[int, tuple[int, int, int]] | None:
        """By index of each GPU, what is used and its total, in units of the node, and its used slots; None: it shares
        none."""
        status, body = self.extender.verbs.inspect(node)
        if status != 200:
            return None
        (seen,) = json.loads(body)["nodes"]
        return {d["id"]: (d["usedGPU"], d["totalGPU"], d.get("usedSlots", 0)) for d in seen["devs"]}


def metered(call: Callable[[], bytes], what: str, most: int = MOST_CALLS) -> bytes:
    """Runs it and counts the functions it calls, which is the same on every machine. Too many end it."""
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += 1
        if count > most:
            sys.setprofile(None)
            raise TooDear(f"{what} calls more than {most} functions")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        return call()
    finally:
        sys.setprofile(before)
