"""Events about a pod or a node, as `kubectl describe` shows them."""

from tests.e2e.harness.cluster import NODE
from tests.e2e.harness.world import World
from tests.support import wait
from tests.support.objects import Object

PATIENCE = 20.0  # seconds


async def until_event(world: World, pod: str, reason: str, saying: str = "") -> str:
    """Waits for an event of this reason that has these words. Returns its message."""

    async def message() -> str | None:
        events = await about(world, pod)
        messages = (str(event["message"]) for event in events if event["reason"] == reason)
        return next((message for message in messages if saying in message), None)

    try:
        return await wait.eventually_asked(message, f"an event {reason} about {pod} with {saying!r}", PATIENCE)
    except AssertionError as late:
        others = [f"{event['reason']}: {event['message']}" for event in await about(world, pod)]
        raise AssertionError(f"{late}; there are {others}") from None


async def about(world: World, name: str) -> list[Object]:
    """Events about nodes are in the namespace default."""
    path = "/api/v1/namespaces/default/events" if name == NODE else world.api.events
    answer = await world.api.get(path, fieldSelector=f"involvedObject.name={name}")
    return list(answer.body["items"])
