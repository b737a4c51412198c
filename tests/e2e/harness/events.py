"""Events about a pod or a node, as `kubectl describe` shows them."""

import asyncio
import time

from tests.e2e.harness.cluster import NODE
from tests.e2e.harness.world import World
from tests.support.objects import Object

PATIENCE = 20.0  # seconds


async def until_event(world: World, pod: str, reason: str, saying: str = "") -> str:
    """Waits for an event of this reason in which these words are, and returns its sentence."""
    patience_ends = time.monotonic() + PATIENCE
    while True:
        found = await about(world, pod)
        for event in found:
            if event["reason"] == reason and saying in event["message"]:
                return str(event["message"])
        said = [f"{event['reason']}: {event['message']}" for event in found]
        assert time.monotonic() < patience_ends, f"{pod}: no event {reason} within {PATIENCE:.0f} s, only {said}"
        await asyncio.sleep(0.1)


async def about(world: World, name: str) -> list[Object]:
    """Those about nodes are in the namespace default."""
    path = "/api/v1/namespaces/default/events" if name == NODE else world.api.events
    answer = await world.api.get(path, fieldSelector=f"involvedObject.name={name}")
    return list(answer.body["items"])
