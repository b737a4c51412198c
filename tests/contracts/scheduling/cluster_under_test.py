"""The cluster that a scheduling scenario runs in: an API server with a namespace of its own, a scheduler, the extender.

`tests/devcluster/scheduler/test_scheduler.py` has one made of stand-ins, `tests/e2e/test_scheduling.py` a real one.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tests.support import pod_watch
from tests.support.api_client import Api
from tests.support.objects import Object
from tests.support.pod_watch import PodWatch

PATIENCE = 20.0  # seconds; for whatever is sure to come


class ClusterUnderTest(Protocol):
    """`nodes`: by the name a scenario uses, the name in the cluster. `extender_port`: once the scheduler runs.
    `version`: of kube-scheduler, or the one it stands in for."""

    version: tuple[int, int]
    api: Api
    watch: PodWatch
    nodes: dict[str, str]
    extender_port: int

    async def create_node(self, words: Object) -> str:
        """Its name, once pods may go there."""

    async def create_pod(self, made: Object, priority: int) -> None: ...

    def scheduling(self) -> AbstractAsyncContextManager[None]:
        """While scheduler and extender run."""


def condition(pod: Object) -> Object:
    """The condition PodScheduled; empty if there is none."""
    conditions = pod.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "PodScheduled"), {})


async def until_decided(under_test: ClusterUnderTest, name: str) -> None:
    """Waits until a pod is bound, or its condition says why not."""

    def decided() -> bool:
        pod = under_test.watch.pods.get(name, {})
        return bool(pod_watch.node_of(pod) or condition(pod))

    await under_test.watch.until(f"{name} decided", decided, PATIENCE)
