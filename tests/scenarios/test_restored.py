"""What an answer about a pod says, and what it says no more when something else came first."""

import asyncio
from collections.abc import Awaitable, Callable

from gpushare.core.ledger.holding import Holding, State
from tests.scenarios.cluster import Loop
from tests.scenarios.world import World
from tests.support import objects


def holding(world: World, uid: str) -> Holding:
    found = world.ledger.holding(uid)
    assert found is not None
    return found


def told(story: Callable[[World], Awaitable[None]]) -> None:
    async def tell() -> None:
        world = World("binpack", None)
        world.api.nodes["a"] = objects.node("a", {"gpus": [8000]})
        world.start()
        world.set_watch("lost")
        try:
            await story(world)
        finally:
            await world.stop()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(tell())


def test_a_read_from_before_a_second_binding_does_not_undo_that() -> None:
    async def story(world: World) -> None:
        pod = objects.pod({"name": "x", "containers": {"main": 6000}})
        world.api.put_pod(pod)
        world.api.back_up()
        uid = pod["metadata"]["uid"]
        assert await world.bind(pod, "a") == ""
        first = holding(world, uid)
        world.api.restore()
        unbound = await world.api.get_pod("default", "x")
        world.pods.made_sure(first.pod, first, unbound)
        assert world.free("a") == [8000]
        assert await world.bind(pod, "a") == ""
        world.pods.made_sure(first.pod, first, unbound)  # asked for twice, and the second answer took its time
        assert (world.free("a"), holding(world, uid).state) == ([2000], State.BOUND)

    told(story)


def test_a_pod_the_watch_has_shown_bound_meanwhile_stays_bound() -> None:
    async def story(world: World) -> None:
        pod = objects.pod({"name": "x", "containers": {"main": 6000}})
        world.api.put_pod(pod)
        unbound = await world.api.get_pod("default", "x")
        assert await world.bind(pod, "a") == ""
        held = holding(world, pod["metadata"]["uid"])
        world.set_watch("running")
        world.api.put_pod(world.api.pods["default", "x"])
        world.pods.made_sure(held.pod, held, unbound)
        assert world.free("a") == [2000]

    told(story)
