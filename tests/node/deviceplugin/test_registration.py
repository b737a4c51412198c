"""Over real sockets: kubelet is told, told again whenever it has forgotten, and cannot be confused by an old server."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from gpushare.core.facts import kinds, names
from gpushare.devcluster.kubelet.device_manager import DeviceManager
from gpushare.devcluster.kubelet.sockets import KubeletSockets
from gpushare.kubelet import paths, podresources
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.kubelet.pb import methods
from gpushare.node import kubelet_folder
from gpushare.node.endpoint import Endpoint, Identity
from gpushare.obs.errors import UserError
from tests.node.deviceplugin.made import Object, facts, pod
from tests.node.deviceplugin.world import World
from tests.support.wait import PATIENCE, eventually

MEMORY, WHOLE = names.GPU_MEM, names.GPU_COUNT


class Node:
    """The plugin's endpoints run in a folder; kubelets come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = World(8, 8)
        self.kubelets: list[Identity] = []  # as the plugin was told
        self.endpoints = [self._endpoint(resource) for resource in (MEMORY, WHOLE)]

    def _endpoint(self, resource: str) -> Endpoint:
        service = self.world.plugin.services[resource]
        return Endpoint(
            resource, self.socket(resource), service, self.kubelets.append,
            look_seconds=0.02, pause_seconds=0.05, start_seconds=0.1,
        )  # fmt: skip

    def socket(self, resource: str) -> Path:
        return self.folder / kubelet_folder.SOCKETS[resource]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(endpoint.run()) for endpoint in self.endpoints]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def kubelet(self, checkpoint: bytes | None = None) -> AsyncIterator[KubeletSockets]:
        manager = self.world.manager = DeviceManager(self.world.active, self.world.dice, checkpoint)
        async with KubeletSockets(manager, self.folder, self.folder / "pods.sock", self.pods) as sockets:
            yield sockets

    def pods(self) -> list[Object]:
        return [self.world.server.pods[uid] for uid in self.world.active()]

    async def registered(self, times: int) -> None:
        """Both resources so often, and kubelet has their lists."""
        await eventually(lambda: all(endpoint.registrations == times for endpoint in self.endpoints))
        await eventually(lambda: self.world.manager.allocatable() == {MEMORY: 16, WHOLE: 2})

    async def stays(self) -> None:
        """Nothing of an old server or an old stream cuts the new one off."""
        times = [endpoint.registrations for endpoint in self.endpoints]
        await asyncio.sleep(0.2)
        assert [endpoint.registrations for endpoint in self.endpoints] == times
        assert self.world.manager.allocatable() == {MEMORY: 16, WHOLE: 2}


@pytest.fixture
def node(short_path: Path) -> Node:
    return Node(short_path)


async def call(socket: Path, method: str, body: bytes) -> bytes:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        path = methods.path(methods.DEVICE_PLUGIN, method)
        ask: Any = channel.unary_unary(path)
        answer: bytes = await ask(body, timeout=PATIENCE)
        return answer


async def test_each_resource_has_a_server_of_its_own(node: Node) -> None:
    async with node.kubelet(), node.running():
        await node.registered(1)
        assert {path.name for path in node.folder.iterdir() if path.is_socket()} == {
            "kubelet.sock", "pods.sock", "aliyungpushare.sock", "aliyungpushare-count.sock",
        }  # fmt: skip
        for resource in (MEMORY, WHOLE):
            body = await call(node.socket(resource), methods.OPTIONS, b"")
            assert messages.DevicePluginOptions.FromString(body).get_preferred_allocation_available
        assert await call(node.socket(MEMORY), methods.PRE_START, b"") == b""


async def test_pods_get_their_gpus_and_kubelet_says_who_has_which(node: Node) -> None:
    async with node.kubelet(), node.running():
        await node.registered(1)
        uid = node.world.bound(pod(6), on=[[1]])
        node.world.deliver()
        await node.world.manager.admit(node.world.server.pods[uid])
        assert node.world.units(uid, "main-0") == {"GPU-1": 6}
        (listed,) = await podresources.ask(node.folder / "pods.sock")
        assert (listed.pod, listed.container, listed.kind, len(listed.ids)) == ("pod-0", "main-0", kinds.MEMORY, 6)


async def test_kubelet_hears_of_an_unhealthy_gpu_at_once(node: Node) -> None:
    async with node.kubelet(), node.running():
        await node.registered(1)
        node.world.set_gpus(facts(8, 8, unhealthy={1: "XID 79"}))
        await eventually(lambda: node.world.manager.allocatable() == {MEMORY: 8, WHOLE: 1})
        assert node.world.manager.capacity() == {MEMORY: 16, WHOLE: 2}
        node.world.set_gpus(facts(8, 8))
        await eventually(lambda: node.world.manager.allocatable() == {MEMORY: 16, WHOLE: 2})


async def test_a_kubelet_that_restarts_is_told_again(node: Node) -> None:
    async with node.running():
        async with node.kubelet():
            await node.registered(1)
        async with node.kubelet():
            await node.registered(2)
            await node.stays()
    assert len(set(node.kubelets)) == 2


async def test_a_kubelet_that_is_killed_and_restarts_is_told_again(node: Node) -> None:
    """Its socket stays until the next one makes its own; nobody says goodbye."""
    async with node.running(), contextlib.AsyncExitStack() as first:
        await first.enter_async_context(node.kubelet())
        await node.registered(1)
        async with node.kubelet():  # deletes all sockets, the old kubelet's and ours
            await node.registered(2)
            await node.stays()


async def test_our_socket_deleted_by_somebody_is_made_again(node: Node) -> None:
    async with node.kubelet(), node.running():
        await node.registered(1)
        for endpoint in node.endpoints:
            node.socket(endpoint._resource).unlink()
        await node.registered(2)
        await node.stays()


async def test_a_stream_that_kubelet_ends_is_opened_again(node: Node) -> None:
    async with node.kubelet() as kubelet, node.running():
        await node.registered(1)
        for resource in (MEMORY, WHOLE):
            await kubelet._disconnect(resource)
        await node.registered(2)
        await node.stays()


async def test_a_kubelet_that_is_not_there_is_waited_for_and_then_named(node: Node) -> None:
    with pytest.raises(UserError) as caught:
        await node.endpoints[0].run()
    assert caught.value.what == f"kubelet's socket is not there: {node.folder / 'kubelet.sock'}"


async def test_a_kubelet_that_refuses_the_registration_is_asked_again(node: Node) -> None:
    numbers = itertools.count()
    async with node.kubelet() as kubelet:
        register = kubelet._register

        async def grumpy(body: bytes, context: Any) -> bytes:
            if next(numbers) < 4:
                await context.abort(grpc.StatusCode.UNKNOWN, "not now")
            return await register(body, context)

        async with grumpy_kubelet(kubelet, grumpy), node.running():
            await node.registered(1)
    assert next(numbers) >= 6


@contextlib.asynccontextmanager
async def grumpy_kubelet(kubelet: KubeletSockets, register: Any) -> AsyncIterator[None]:
    """Serves registrations in its stead."""
    await kubelet._servers.pop().stop(None)
    await kubelet._serve(kubelet._folder / paths.KUBELET_SOCKET, methods.REGISTRATION, methods.REGISTER, register)
    yield


@pytest.mark.parametrize("method", [methods.PREFERRED, methods.ALLOCATE])
async def test_bytes_that_are_no_message_get_a_sentence_and_change_nothing(node: Node, method: str) -> None:
    async with node.kubelet(), node.running():
        await node.registered(1)
        for resource in (MEMORY, WHOLE):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(node.socket(resource), method, b"\x0a\x7fnonsense")
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert caught.value.details() == (
                "gpushare: cannot read kubelet's message: it ends in the middle of a field"
            )
        assert node.world.plugin.held() == {}
        await node.stays()


async def test_a_method_that_does_not_exist_is_unimplemented(node: Node) -> None:
    async with node.kubelet(), node.running():
        await node.registered(1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(node.socket(MEMORY), "Deallocate", b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_request_may_be_as_large_as_the_list_and_larger_than_grpc_allows_by_itself(node: Node) -> None:
    asked = [f"{'long-' * 50}{number:05}" for number in range(20_000)]
    body = messages.AllocateRequest(container_requests=[{"devices_ids": asked}]).SerializeToString()
    assert len(body) > 4 << 20
    async with node.kubelet(), node.running():
        await node.registered(1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(node.socket(MEMORY), methods.ALLOCATE, body)
        assert "gpushare: kubelet asks for long-long-" in str(caught.value.details())
