"""The labels of a node's GPUs are kept true while GPUs, the node and what is sold change."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gpushare.core.facts import names, objects
from gpushare.gpu import health, simulated
from gpushare.gpu.device import NoGpu, Versions
from gpushare.gpu.simulated import Simulated
from gpushare.kube.labels import writer
from gpushare.kube.labels.this_node import ThisNode
from gpushare.kube.reflector import Reflector
from gpushare.kube.resources import NODES
from gpushare.node import gpus as node_gpus
from gpushare.node.discovery.discovery import Config, Discovery
from gpushare.node.discovery.labels import Sharing
from gpushare.node.gpus import Gpus
from gpushare.obs.errors import UserError
from tests.support.label_api import NAMESPACE, NODE, LabelApi
from tests.support.tasks import beside
from tests.support.wait import eventually

COUNT, REPLICAS, PRODUCT = "nvidia.com/gpu.count", "nvidia.com/gpu.replicas", "nvidia.com/gpu.product"
FEATURE = f"{names.DISCOVERY_MANAGER}-{NODE}"


class World:
    """One node with two GPUs, its discovery, and everything that it looks at."""

    def __init__(self, root: Path) -> None:
        self.api = LabelApi(nfd=True)
        self.driver = Simulated([simulated.device(i, f"GPU-{i}", 16000) for i in range(2)])
        self.gpus, self.this_node = Gpus(self.driver), ThisNode(NODE)
        self.sharing: Sharing | None = Sharing()
        self.discovery = self.made(root)

    def made(self, root: Path) -> Discovery:
        return Discovery(
            Config("auto", NAMESPACE), self.api, self.gpus, self.this_node, self.driver,
            sharing=lambda: self.sharing, root=root, now=lambda: 1234.5,
        )  # fmt: skip

    @property
    def labels(self) -> dict[str, str]:
        return {key: value for key, value in self.api.labels.items() if key.startswith("nvidia.com/gpu.")}

    async def until(self, **values: str) -> None:
        """Labels nvidia.com/gpu.KEY have these values."""
        wanted = {f"nvidia.com/gpu.{key}": value for key, value in values.items()}
        await eventually(lambda: wanted.items() <= self.api.labels.items(), f"{wanted}")

    async def until_none(self) -> None:
        await eventually(lambda: COUNT not in self.api.labels, "no labels")


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(health, "RECOVERY_SECONDS", 0.01)
    for module, name in ((node_gpus, "LOOK_SECONDS"), (node_gpus, "LISTEN_SECONDS"), (writer, "PAUSE")):
        monkeypatch.setattr(module, name, 0.01)
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id/product_name").write_text("Some Machine\n")
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "class").write_text("0x030200\n")
    made = World(tmp_path)
    watch = Reflector(made.api, NODES, objects.Node, made.this_node, key=lambda n: n.metadata.name)
    async with contextlib.AsyncExitStack() as running:
        await made.gpus.begin(1.0)
        for work in (watch.run(), made.gpus.look(), made.discovery.run()):
            await running.enter_async_context(beside(work))
        yield made


async def test_a_node_says_what_gpus_it_has(world: World) -> None:
    await world.until(count="2", memory="16000", product="simulated-GPU", machine="Some-Machine", mode="compute")
    assert world.api.labels["nvidia.com/gfd.timestamp"] == "1234"
    assert len(world.api.sent) == 1
    assert not [key for key in world.api.labels if "cuda.driver" in key], "its version is no version"


async def test_labels_follow_the_gpus(world: World) -> None:
    await world.until(count="2")
    world.driver.lose("GPU-1")
    await world.until(count="1")
    world.driver.put(simulated.device(1, "GPU-1", 16000))
    await world.until(count="2")


async def test_labels_go_with_the_last_gpu_and_come_back(world: World) -> None:
    await world.until(count="2")
    world.driver.fail(NoGpu("the driver works but shows no GPU", "why", "way"))
    await world.until_none()
    world.driver.fail(None)
    await world.until(count="2")


async def test_labels_stay_while_the_driver_fails(world: World) -> None:
    await world.until(count="2")
    world.driver.fail(UserError("the driver fails", "why", "way"))
    await eventually(lambda: len(world.gpus.unhealthy) == 2)
    assert world.labels[COUNT] == "2"


async def test_labels_follow_what_is_sold(world: World) -> None:
    await world.until(replicas="1")
    world.sharing = Sharing("time-slicing", 4)
    world.discovery.look()
    await world.until(replicas="4", product="simulated-GPU-SHARED")


async def test_nothing_is_said_before_it_is_known_what_is_sold(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.sharing = None
    await made.gpus.begin(1.0)
    made.this_node.upsert(msgspec.convert(made.api.node, objects.Node))
    async with beside(made.discovery.run()):
        await made.discovery._update()
        assert made.api.sent == []
        made.sharing = Sharing()
        made.discovery.look()
        await made.until(count="2")


@pytest.mark.parametrize(("key", "value"), [(names.DISCOVERED, "false"), (names.GPU_PRESENT, "false")])
async def test_a_node_can_switch_it_off_and_on(world: World, key: str, value: str) -> None:
    await world.until(count="2")
    world.api.label(key, value)
    await world.until_none()
    world.api.label(key, "true")
    await world.until(count="2")
    world.api.label(key, "")
    await world.until(count="2")


async def test_a_label_that_was_removed_or_changed_comes_back(world: World) -> None:
    await world.until(count="2")
    world.api.label(COUNT, None)
    await world.until(count="2")
    world.api.label(PRODUCT, "mine")
    await world.until(product="simulated-GPU")


async def test_where_nfd_runs_it_gets_the_labels(world: World) -> None:
    await world.until(count="2")
    world.api.worker(runs=True)
    found = await eventually(lambda: world.api.feature(FEATURE), "a NodeFeature")
    assert found[COUNT] == "2"
    assert world.labels == {}
    world.api.label(names.DISCOVERED, "false")
    await eventually(lambda: world.api.feature(FEATURE) is None)


async def test_a_driver_that_does_not_say_its_version_costs_those_labels_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> Versions:
        raise UserError("the driver fails", "why", "way")

    await world.until(count="2")
    monkeypatch.setattr(world.driver, "versions", fails)
    world.driver.lose("GPU-1")
    await world.until(count="1")
