"""A pod is marked assigned once its containers have started, and not before."""

from typing import Any

import msgspec
import pytest

from gpushare.core.facts import names, request
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy
from gpushare.gpu.simulated import Simulated
from gpushare.node import pods
from gpushare.node.pods import NodePod
from gpushare.node.publishing import assigned
from tests.node import world
from tests.node.world import bound, capacity, running, starts
from tests.support import embedded_objects
from tests.support.wait import eventually, until

RUNNING = {"state": {"running": {"startedAt": "2026-11-15T12:00:00Z"}}}
WAITING = {"state": {"waiting": {"reason": "ContainerCreating"}}}
ENDED = {"state": {"terminated": {"exitCode": 0}}}
CRASHED = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}
UNKNOWN: dict[str, Any] = {"state": None}


@pytest.mark.parametrize(
    ("containers", "inits", "marked"),
    [
        ([RUNNING, RUNNING], [], True),
        ([RUNNING, WAITING], [], False),
        ([RUNNING, None], [], False),
        ([RUNNING, UNKNOWN], [], False),
        ([RUNNING, CRASHED], [], True),
        ([RUNNING, ENDED], [], True),
        ([RUNNING, RUNNING], [ENDED], True),
        ([WAITING, WAITING], [RUNNING], False),
        ([None, None], [], False),
    ],
)
def test_every_container_that_asks_must_have_started(
    containers: list[world.Object | None], inits: list[world.Object], marked: bool
) -> None:
    made = embedded_objects.pod("p", 1000, 2000, init=[500] * len(inits))
    made["spec"]["containers"].append({"name": "logs"})  # asks for nothing and may start whenever it likes
    made["metadata"]["annotations"] = {names.ALIYUN_ASSIGNED: "false"}
    made["status"] = {
        "containerStatuses": [{"name": f"c{i}", **state} for i, state in enumerate(containers) if state],
        "initContainerStatuses": [{"name": f"i{i}", **state} for i, state in enumerate(inits)],
    }
    assert assigned.is_due(seen(made)) is marked


@pytest.mark.parametrize(
    ("change", "marked"),
    [
        ({"metadata": {"annotations": {names.ALIYUN_ASSIGNED: "false"}}}, True),
        ({"metadata": {"annotations": {names.ALIYUN_ASSIGNED: "true"}}}, False),
        ({"metadata": {}}, False),  # somebody else bound it
        ({"metadata": {"annotations": {names.ALIYUN_ASSIGNED: "false", names.POLICY: "nonsense"}}}, False),
    ],
)
def test_only_what_an_extender_bound_is_marked_and_only_once(change: world.Object, marked: bool) -> None:
    made = embedded_objects.pod("p", 1000) | {"status": {"containerStatuses": [{"name": "c0", **RUNNING}]}} | change
    assert assigned.is_due(seen(made)) is marked
    made["status"]["phase"] = "Succeeded"
    assert not assigned.is_due(seen(made))


async def test_a_pod_that_starts_is_marked(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus):
        await until(server, lambda: capacity(server)[0])
        bound(server, "p", 1000, on="GPU-0")
        starts(server, "p", "c0")
        await until(server, lambda: mark(server, "p") == "true")


async def test_a_pod_that_started_while_we_were_away_is_marked(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus):
        await until(server, lambda: capacity(server)[0])
    bound(server, "p", 1000, on="GPU-0")
    starts(server, "p", "c0")
    async with running(server.url, gpus):
        await until(server, lambda: mark(server, "p") == "true")


async def test_another_pod_of_the_same_name_is_not_marked(server: ApiServer, gpus: Simulated) -> None:
    """Its deletion is not seen yet when the mark is written: the uid says that another one is meant."""
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server)[0])
        made = bound(server, "p", 1000, on="GPU-0")
        started = msgspec.convert(made, pods.Pod)
        started.status.container_statuses = [msgspec.convert({"name": "c0", **RUNNING}, pods.ContainerStatus)]
        embedded_objects.delete(server, "p")
        bound(server, "p", 1000, on="GPU-0")
        await eventually(lambda: list(node.pods.pods) != [made["metadata"]["uid"]])
        node.pods.upsert(started)
        await eventually(
            lambda: any(write.code in (409, 422) for write in server.audit if write.path.endswith("pods/p"))
        )
        node.pods.remove(started)
        assert mark(server, "p") == "false"


async def test_a_mark_that_cannot_be_written_is_written_later(server: ApiServer, gpus: Simulated) -> None:
    failing = plan.Plan({plan.UNAVAILABLE: 1.0}, eligible=lambda method, path: "/pods/" in path and method == "PATCH")
    async with FaultProxy(server.url, failing) as proxy, running(proxy.url, gpus):
        await until(server, lambda: capacity(server)[0])
        bound(server, "p", 1000, on="GPU-0")
        starts(server, "p", "c0")
        await eventually(lambda: proxy.counts[plan.UNAVAILABLE] >= 2)
        assert mark(server, "p") == "false"
        proxy.plan = plan.Plan()
        await until(server, lambda: mark(server, "p") == "true")


def seen(made: world.Object) -> NodePod:
    pod = msgspec.convert(made, pods.Pod)
    return NodePod(request.facts(pod, "MiB"), pod)


def mark(server: ApiServer, name: str) -> str | None:
    found = embedded_objects.find(server, name)
    return found["metadata"]["annotations"].get(names.ALIYUN_ASSIGNED) if found else None
