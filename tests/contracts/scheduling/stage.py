"""Where a scenario of scheduling plays: an API server with a namespace of its own, a scheduler and the extender.

`tests/devcluster/scheduler/test_scheduler.py` has one of stand-ins, `tests/e2e/test_scheduling.py` one of the real
things.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tests.e2e.harness import sight
from tests.e2e.harness.sight import Sight
from tests.support.api_client import Api
from tests.support.objects import Object

PATIENCE = 20.0  # seconds; for whatever is sure to come


class Stage(Protocol):
    """`nodes`: by the name a scenario uses, the name in the cluster. `extender_port`: once the scheduler runs.
    `version`: of kube-scheduler, or the one it stands in for."""

    version: tuple[int, int]
    api: Api
    sight: Sight
    nodes: dict[str, str]
    extender_port: int

    async def create_node(self, words: Object) -> str:
        """Its name, once pods may go there."""

    async def create_pod(self, made: Object, priority: int) -> None: ...

    def scheduling(self) -> AbstractAsyncContextManager[None]:
        """While scheduler and extender run."""


def condition(pod: Object) -> Object:
    """PodScheduled, as far as anybody has said anything."""
    found = pod.get("status", {}).get("conditions") or []
    return next((c for c in found if c["type"] == "PodScheduled"), {})


async def until_decided(stage: Stage, name: str) -> None:
    """Waits until a pod is bound, or somebody has said why not."""

    def decided() -> bool:
        pod = stage.sight.pods.get(name, {})
        return bool(sight.node_of(pod) or condition(pod))

    await stage.sight.until(f"{name} decided", decided, PATIENCE)
