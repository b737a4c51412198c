"""On request unhealthy GPUs stand in the ConfigMap that Aliyun's extender reads; by default nobody writes one."""

from typing import Any

import msgspec

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy
from gpushare.gpu.device import Xid
from gpushare.gpu.simulated import Simulated
from gpushare.node.publishing import unhealthy_configmap
from tests.node import world
from tests.node.world import health_of, running
from tests.support.wait import eventually, until

ASKED = world.CONFIG._replace(unhealthy_configmap=True)
NAME = names.UNHEALTHY_PREFIX + world.NAME
MAPS = next(kind for kind in table.KINDS if kind.resource == "configmaps")


async def test_unhealthy_gpus_are_listed_and_the_list_goes_when_all_are_healthy(
    server: ApiServer, gpus: Simulated
) -> None:
    async with running(server.url, gpus, ASKED):
        await until(server, lambda: health_of(server) == [True, True])
        assert listed(server) is None
        first, second = world.devices(*world.SIZES)
        gpus.put(msgspec.structs.replace(second, fault="it is too hot"))
        await until(server, lambda: listed(server) == "1")
        gpus.put(msgspec.structs.replace(first, fault="it is too hot"))
        await until(server, lambda: listed(server) == "0,1")
        for healthy in (first, second):
            gpus.put(healthy)
        await until(server, lambda: listed(server) is None)


async def test_a_list_left_by_a_predecessor_is_put_right(server: ApiServer, gpus: Simulated) -> None:
    write(server, "0", unhealthy_configmap.LABELS)
    async with running(server.url, gpus, ASKED):
        await until(server, lambda: listed(server) is None)


async def test_a_list_that_somebody_else_wrote_stays(server: ApiServer, gpus: Simulated) -> None:
    write(server, "1", {})
    async with running(server.url, gpus, ASKED):
        gpus.report(Xid("GPU-0", 79))
        await until(server, lambda: health_of(server) == [False, True])
        await until(server, lambda: health_of(server) == [True, True])
    assert listed(server) == "1"


async def test_a_list_that_cannot_be_written_is_written_later(server: ApiServer, gpus: Simulated) -> None:
    failing = plan.Plan({plan.UNAVAILABLE: 1.0}, eligible=lambda method, path: "configmaps" in path)
    gpus.put(msgspec.structs.replace(world.devices(*world.SIZES)[0], fault="it is too hot"))
    async with FaultProxy(server.url, failing) as proxy, running(proxy.url, gpus, ASKED):
        await eventually(lambda: proxy.counts[plan.UNAVAILABLE] >= 2)
        assert listed(server) is None
        proxy.plan = plan.Plan()
        await until(server, lambda: listed(server) == "0")


async def test_unasked_nobody_writes_one(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus):
        await until(server, lambda: health_of(server) == [True, True])
        gpus.report(Xid("GPU-1", 79))
        await until(server, lambda: health_of(server) == [True, False])
    assert listed(server) is None


def listed(server: ApiServer) -> str | None:
    entry = server.store.get(MAPS.resource, f"{names.UNHEALTHY_NAMESPACE}/{NAME}")
    return None if entry is None else entry.obj()["data"][names.UNHEALTHY_KEY]


def write(server: ApiServer, gpus: str, labels: dict[str, str]) -> None:
    made: dict[str, Any] = {
        "metadata": {"name": NAME, "labels": labels}, "data": {names.UNHEALTHY_KEY: gpus}
    }  # fmt: skip
    server.registry.create(MAPS, names.UNHEALTHY_NAMESPACE, made)
