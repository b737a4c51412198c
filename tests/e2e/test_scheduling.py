"""kube-scheduler itself plays the scenarios of `tests/contracts/scheduling`; in `make test` its stand-in does."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.contracts.scheduling import driver
from tests.e2e.harness import objects, shipped
from tests.e2e.harness.world import World
from tests.support.objects import Object


class Real:
    """kube-apiserver, kube-scheduler and the extender, each a process of its own."""

    def __init__(self, world: World) -> None:
        self.api, self.watch, self._world = world.api, world.watch, world
        self.version = world.cluster.kind.number
        self.nodes: dict[str, str] = {}
        self.extender_port = shipped.EXTENDER_PORT

    async def create_node(self, words: Object) -> str:
        (name,) = await self._world.make_nodes(1, **words)
        return name

    async def create_pod(self, made: Object, priority: int) -> None:
        if priority:
            await self._world.cluster.apply(objects.priority_class(priority))
        await self.api.create(self.api.pods, made)

    @contextlib.asynccontextmanager
    async def scheduling(self) -> AsyncIterator[None]:
        async with self._world.cluster.extender(), self._world.cluster.scheduler():
            yield


@pytest.mark.parametrize("scenario", driver.SCENARIOS, ids=driver.name_of)
async def test_kube_scheduler_does_what_its_stand_in_does(world: World, scenario: Object) -> None:
    await driver.run(Real(world), scenario)
