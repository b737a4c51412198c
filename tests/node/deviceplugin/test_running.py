"""The whole plugin at work, over sockets: what it does at its start, and what it does by itself afterwards."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.devcluster.kubelet.device_manager import DeviceManager
from gpushare.devcluster.kubelet.sockets import KubeletSockets
from gpushare.node.deviceplugin import plugin as module
from gpushare.node.deviceplugin import reconcile
from gpushare.node.deviceplugin.plugin import Plugin
from gpushare.node.endpoint import Endpoint
from tests.node.deviceplugin.made import NODE, pod
from tests.node.deviceplugin.world import World
from tests.support.wait import eventually


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder, self.world = folder, World(8, 8)
        (folder / "device-plugins").mkdir()
        (folder / "pod-resources").mkdir()

    def make(self) -> Plugin:
        world = self.world
        world.plugin = Plugin(
            node=NODE, unit="MiB", api=world.server, pods=world.watched, events=world.events,  # type: ignore[arg-type]
            kubelet=self.folder,
        )  # fmt: skip
        world.plugin.set_gpus(world.facts)
        return world.plugin

    @contextlib.asynccontextmanager
    async def kubelet(self, checkpoint: bytes | None = None) -> AsyncIterator[DeviceManager]:
        manager = self.world.manager = DeviceManager(self.world.active, self.world.dice, checkpoint)
        sockets = KubeletSockets(
            manager,
            self.folder / "device-plugins",
            self.folder / "pod-resources" / "kubelet.sock",
            lambda: [self.world.server.pods[uid] for uid in self.world.active()],
        )
        async with sockets:
            yield manager

    @contextlib.asynccontextmanager
    async def running(self, plugin: Plugin) -> AsyncIterator[None]:
        task = asyncio.create_task(plugin.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def node(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(module, "Endpoint", partial(Endpoint, look_seconds=0.02, pause_seconds=0.02))
    monkeypatch.setattr(reconcile, "QUIET_SECONDS", 0.05)
    return Node(short_path)


async def test_what_pods_hold_is_known_before_kubelet_may_ask(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = node.world.bound(pod(5), on=[[1]])
    held: list[dict[str, int]] = []
    async with node.kubelet() as manager:
        node.world.given_before(uid, "main-0", node.world.plugin.state.catalog.names({"GPU-1": 0b11111}))
        node.world.deliver()
        plugin, connected = node.make(), manager.connected

        def listening(*given: Any, **more: Any) -> None:
            held.append(plugin.held())
            connected(*given, **more)

        monkeypatch.setattr(manager, "connected", listening)
        async with node.running(plugin):
            await eventually(lambda: len(held) == 2)
    assert held == [{"GPU-1": 5}] * 2


async def test_a_moment_after_a_pod_was_taken_its_annotations_are_true(node: Node) -> None:
    async with node.kubelet() as manager, node.running(node.make()):
        await eventually(lambda: manager.allocatable() == {names.GPU_MEM: 16, names.GPU_COUNT: 2})
        one, two = node.world.bound(pod(6), on=[[0]]), node.world.bound(pod(6), on=[[1]])
        node.world.deliver()
        for uid in (two, one):
            await manager.admit(node.world.server.pods[uid])
        await eventually(lambda: node.world.notes(one)[names.ALIYUN_ASSIGNED] == "true")
        await eventually(lambda: node.world.notes(two)[names.ALIYUN_ASSIGNED] == "true")
        assert [node.world.notes(uid)[names.ALIYUN_IDX] for uid in (one, two)] == ["1", "0"]


async def test_a_kubelet_that_restarted_may_have_forgotten_what_it_got_last(node: Node) -> None:
    plugin = node.make()
    async with node.running(plugin):
        async with node.kubelet() as manager:
            await eventually(lambda: manager.allocatable() == {names.GPU_MEM: 16, names.GPU_COUNT: 2})
            saved = manager.checkpoint()
            node.world.server.away = True  # nobody settles anything
            uid = node.world.bound(pod(8), on=[[0]])
            node.world.deliver()
            await manager.admit(node.world.server.pods[uid])
        async with node.kubelet(saved) as again:
            await eventually(lambda: again.allocatable() == {names.GPU_MEM: 16, names.GPU_COUNT: 2})
            await again.admit(node.world.server.pods[uid])
            assert plugin.held() == {"GPU-0": 8}


async def test_what_could_not_be_read_of_the_node_at_the_start_is_read_later(node: Node) -> None:
    node.world.server.node["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.0"}
    node.world.server.away = True
    plugin = node.make()
    async with node.kubelet(), node.running(plugin):
        await eventually(lambda: node.world.manager.allocatable() == {names.GPU_MEM: 16, names.GPU_COUNT: 2})
        assert plugin.state.most is None
        node.world.server.away = False
        await eventually(lambda: plugin.state.most == 50_000)
