"""Events about a pod, as `kubectl describe pod` shows them."""

import asyncio
import time

from tests.e2e.world import World
from tests.scenarios.objects import Object

PATIENCE = 20.0  # seconds


async def until_said(world: World, pod: str, reason: str) -> str:
    """Waits for an event of this reason, and returns its sentence."""
    patience_ends = time.monotonic() + PATIENCE
    while True:
        found = await about(world, pod)
        for event in found:
            if event["reason"] == reason:
                return str(event["message"])
        said = [f"{event['reason']}: {event['message']}" for event in found]
        assert time.monotonic() < patience_ends, f"{pod}: no event {reason} within {PATIENCE:.0f} s, only {said}"
        await asyncio.sleep(0.1)


async def about(world: World, pod: str) -> list[Object]:
    answer = await world.api.get(world.api.events, fieldSelector=f"involvedObject.name={pod}")
    return list(answer.body["items"])
