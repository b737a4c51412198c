"""A node that is asked to count in another unit while pods run on it: it goes on as it was until they are gone."""

from pathlib import Path

import pytest

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.simulated import Simulated
from gpushare.node.app import Config
from tests.node import world
from tests.node.world import CONFIG, bound, capacity, running, said, warnings
from tests.support import embedded_objects
from tests.support.wait import eventually, until

IN_GIB, IN_MIB = ("25", "2"), ("27454", "2")
GIB = CONFIG._replace(unit="GiB")


def unit(server: ApiServer) -> str:
    return str((said(server) or {}).get("unit"))


async def test_the_unit_is_kept_while_a_pod_has_it_and_then_changed_by_itself(
    server: ApiServer, gpus: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gpushare.node.publishing.publisher")
    async with running(server.url, gpus, GIB):
        await until(server, lambda: capacity(server) == IN_GIB)
        bound(server, "gib", 15, on="GPU-0")
    async with running(server.url, gpus) as node:
        (reason, name, text) = await until(server, lambda: next(iter(warnings(server)), None))
        assert (reason, name) == ("UnitKept", world.NAME)
        assert text.startswith("Pods here were given memory in GiB, so this node counts GiB until they are gone")
        assert (unit(server), capacity(server)) == ("GiB", IN_GIB)
        assert await eventually(lambda: node.not_ready() == "")
        embedded_objects.delete(server, "gib")
        await until(server, lambda: (unit(server), capacity(server)) == ("MiB", IN_MIB))
        assert await eventually(lambda: node.not_ready() == "")
        assert [gpu.total for gpu in world.published(server).gpus] == [16276, 11178]
    told = [record.message for record in caplog.records if "another unit" in record.message]
    assert told == [
        "pods here were given memory in another unit: keeping it",
        "no pod with memory in another unit is left: changing the unit",
    ]


def reported(server: ApiServer) -> tuple[str, str] | None:
    """The pod of another unit, and what is said of it."""
    return next(((name, text) for reason, name, text in warnings(server) if reason == "OtherUnit"), None)


@pytest.mark.parametrize("beside", [True, False])
async def test_a_pod_of_another_unit_is_reported_and_turns_no_node_back(
    server: ApiServer, gpus: Simulated, beside: bool
) -> None:
    """It was bound while the node changed; also if it is the only one there."""
    async with running(server.url, gpus, GIB):
        await until(server, lambda: capacity(server) == IN_GIB)
        before = world.published(server)
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server) == IN_MIB)
        if beside:
            bound(server, "new", 4000, on="GPU-1")
        bound(server, "late", 15, on="GPU-0", facts=before)
        name, text = await until(server, lambda: reported(server))
        assert name == "late"
        assert "15 GiB are charged as 15360 MiB" in text
        await node.drain()  # publishes once more
        assert (unit(server), capacity(server)) == ("MiB", IN_MIB)


async def test_a_forged_annotation_turns_no_node_to_another_unit(server: ApiServer, gpus: Simulated) -> None:
    async with running(server.url, gpus) as node:
        await until(server, lambda: capacity(server) == IN_MIB)
        bound(server, "small", 16, on="GPU-0")
        forged = {"metadata": {"annotations": {names.ALIYUN_DEV: "15"}}}
        server.registry.patch(embedded_objects.PODS, "default", "small", embedded_objects.MERGE, forged, "")
        assert (await until(server, lambda: reported(server)))[0] == "small"
        await node.drain()
        assert (unit(server), capacity(server)) == ("MiB", IN_MIB)


async def test_the_devices_of_a_plugin_keep_their_unit_as_well(
    server: ApiServer, gpus: Simulated, kubelet: Path
) -> None:
    plugin = Config(world.NAME, "GiB", "plugin", port=0, kubelet=str(kubelet))
    async with running(server.url, gpus, plugin):
        await until(server, lambda: said(server))
        bound(server, "gib", 15, on="GPU-0", direct=False)
    async with running(server.url, gpus, plugin._replace(unit="MiB")) as node:
        await until(server, lambda: node.plugin is not None and node.plugin.state.catalog.totals)
        assert node.plugin is not None
        kept = dict(node.plugin.state.catalog.keys)
        assert node.plugin.state.catalog.totals == {"GPU-0": 15, "GPU-1": 10}
        assert unit(server) == "GiB"
        embedded_objects.delete(server, "gib")
        await until(server, lambda: unit(server) == "MiB")
        assert node.plugin.state.catalog.totals == {"GPU-0": 16276, "GPU-1": 11178}
        assert all(node.plugin.state.catalog.keys[uuid] != key for uuid, key in kept.items())


async def test_what_kubelet_can_report_of_a_container_is_published_and_follows_unit_and_version(
    server: ApiServer, gpus: Simulated, kubelet: Path
) -> None:
    plugin = Config(world.NAME, "MiB", "plugin", port=0, kubelet=str(kubelet))
    world.patch(server, {"status": {"nodeInfo": {"kubeletVersion": "v1.35.9"}}}, "status")
    async with running(server.url, gpus, plugin):
        await until(server, lambda: said(server))
        assert world.published(server).limit == 0
        world.patch(server, {"status": {"nodeInfo": {"kubeletVersion": "v1.36.4"}}}, "status")
        await until(server, lambda: world.published(server).limit == 50_000)
    async with running(server.url, gpus, plugin._replace(unit="GiB")):
        await until(server, lambda: (unit(server), world.published(server).limit) == ("GiB", 0))
