"""GPUNodes of very many simulated nodes, written as the node part writes them: the whole status, for the resource
version that is known.

There is no node part here: a thousand of them would be most of what is measured.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from gpushare.core.facts import vitals
from gpushare.gpu.sample import Sample
from gpushare.node.usage import gpunode
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from tests.e2e.harness.gpunodes import PATH
from tests.e2e.harness.world import World
from tests.support.objects import Object

KIND = {"apiVersion": f"{vitals.GROUP}/{vitals.VERSION}", "kind": vitals.KIND}
SAMPLE_SECONDS = 5.0
GRANTED = 1500 << 20  # to each container
AT_ONCE = 8  # writes, of those that go on and on: what the machine cannot do waits here, and not in the API server


class Doing(NamedTuple):
    """What a GPU does."""

    used: int  # MiB
    utilization: int
    temperature: int
    watts: int


Figures = Callable[[int, int, int], Doing]
"""By the number of the node, that of the GPU, and the turn."""


class WrittenGpuNodes:
    """`gpus`: MiB of each GPU of a node; `containers`: on each GPU."""

    def __init__(
        self, world: World, nodes: Sequence[str], gpus: Sequence[int], containers: int, figures: Figures
    ) -> None:
        self.nodes, self._world = nodes, world
        self._gpus, self._containers, self._figures = gpus, containers, figures
        self._versions: dict[str, str] = {}  # resource version of each, as it was last seen
        self.written = 0  # by `changing`

    async def make(self) -> None:
        listed = (await self._world.api.get("/api/v1/nodes")).body["items"]
        uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in listed}
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, name: str) -> None:
            async with slots:
                owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uids[name]}
                body = {**KIND, "metadata": {"name": name, "ownerReferences": [owner]}}
                self._versions[name] = (await self._world.api.create(PATH, body))["metadata"]["resourceVersion"]
                await self._write(number, 0)

        await asyncio.gather(*itertools.starmap(one, enumerate(self.nodes)))

    async def keep_writing(self, writes: int, rate: float) -> list[float]:
        """So many writes, evenly: as the chance of a thousand nodes spreads them. The seconds that each took."""
        begun, tasks = time.monotonic(), []
        for number in range(writes):
            await asyncio.sleep(max(begun + number / rate - time.monotonic(), 0))
            turn, at = divmod(number, len(self.nodes))
            tasks.append(asyncio.create_task(self._write(at, 1 + turn)))
        return await asyncio.gather(*tasks)

    @contextlib.asynccontextmanager
    async def changing(self, seconds: float) -> AsyncIterator[None]:
        """Meanwhile all of them change once in so many seconds, as far as the machine can."""
        ending = asyncio.Event()
        task = asyncio.create_task(self._change(len(self.nodes) / seconds, ending))
        try:
            yield
        finally:
            ending.set()  # not cancelled: whether a write was still done would not be known
            await task

    async def _change(self, rate: float, ending: asyncio.Event) -> None:
        begun, before = time.monotonic(), self.written

        async def some() -> None:
            while not ending.is_set():
                number, self.written = self.written, self.written + 1  # each takes the next one
                await asyncio.sleep(max(begun + (number - before) / rate - time.monotonic(), 0))
                turn, at = divmod(number, len(self.nodes))
                await self._write(at, 1 + turn)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(some())

    async def _write(self, number: int, turn: int) -> float:
        begun, name = time.monotonic(), self.nodes[number]
        metadata = {"name": name, "resourceVersion": self._versions[name]}
        body: Object = {**KIND, "metadata": metadata, "status": self._status(name, number, turn)}
        answer = await self._world.api.call("PUT", f"{PATH}/{name}/status", body)
        assert answer.code == 200, answer.body
        self._versions[name] = answer.body["metadata"]["resourceVersion"]
        return time.monotonic() - begun

    def _status(self, name: str, number: int, turn: int) -> Object:
        now, gpus = time.time(), tuple(self._gpu(name, number, gpu, turn) for gpu in range(len(self._gpus)))
        usage = Usage(name, gpus, now, "580.65.06")
        return gpunode.written(gpunode.dated(gpunode.status(usage, (), SAMPLE_SECONDS), None, now))

    def _gpu(self, name: str, number: int, gpu: int, turn: int) -> GpuUse:
        doing, total, uuid = self._figures(number, gpu, turn), self._gpus[gpu] << 20, f"GPU-{name}-{gpu}"
        sample = Sample(
            uuid, gpu, memory_total=total, memory_used=doing.used << 20, gpu_util=doing.utilization,
            temperature=doing.temperature, temperature_limit=93, power=doing.watts * 1000, power_limit=400_000,
        )  # fmt: skip
        containers = tuple(
            ContainerUse(
                "team", f"run-{number}-{gpu}-{i}", f"{number:08}-{gpu:04}-{i:012}", "main",
                granted=GRANTED, used=(1000 + i) << 20, sm=0.03, pids=(1,),
            )
            for i in range(self._containers)
        )  # fmt: skip
        return GpuUse(
            gpu, uuid, "NVIDIA A16", total, GRANTED * self._containers, sample=sample,
            containers=containers, unattributed=412 << 20, unknown_processes=0,
        )  # fmt: skip
