"""A device plugin for tests of the simulated kubelet: it lists what it is told to, and answers as it is told to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc

from gpushare.kubelet import paths
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.kubelet.pb import methods

SOCKET = "test.sock"


class Plugin:
    """`devices`: whether each is healthy. `refuses`: the sentence of every Allocate. `asked`: the ids of each."""

    def __init__(self, devices: Mapping[str, bool]) -> None:
        self.asked: list[list[str]] = []
        self.refuses = ""
        self.answers = asyncio.Event()  # until it is set, Allocate waits
        self.answers.set()
        self._devices, self._news = dict(devices), asyncio.Event()

    def list(self, devices: Mapping[str, bool]) -> None:
        self._devices = dict(devices)
        self._news.set()

    async def lists(self, body: bytes, context: Any) -> AsyncIterator[bytes]:
        while True:
            words = {True: methods.HEALTHY, False: methods.UNHEALTHY}
            listed = [messages.Device(ID=name, health=words[well]) for name, well in self._devices.items()]
            yield messages.ListAndWatchResponse(devices=listed).SerializeToString()
            await self._news.wait()
            self._news.clear()

    async def options(self, body: bytes, context: Any) -> bytes:
        return messages.DevicePluginOptions().SerializeToString()

    async def allocate(self, body: bytes, context: Any) -> bytes:
        (one,) = messages.AllocateRequest.FromString(body).container_requests
        self.asked.append(list(one.devices_ids))
        await self.answers.wait()
        if self.refuses:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refuses)
        told = messages.ContainerAllocateResponse(envs={"GIVEN": ",".join(sorted(one.devices_ids)), "BOTH": "plugin"})
        return messages.AllocateResponse(container_responses=[told]).SerializeToString()


@contextlib.asynccontextmanager
async def registered(plugin: Plugin, resource: str, kubelet: Path) -> AsyncIterator[None]:
    """It serves, and kubelet knows it."""
    folder = kubelet / paths.DEVICE_PLUGINS
    server = grpc.aio.server()
    handlers: dict[str, Any] = {
        methods.OPTIONS: grpc.unary_unary_rpc_method_handler(plugin.options),
        methods.LIST_AND_WATCH: grpc.unary_stream_rpc_method_handler(plugin.lists),
        methods.ALLOCATE: grpc.unary_unary_rpc_method_handler(plugin.allocate),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(methods.DEVICE_PLUGIN, handlers),))
    server.add_insecure_port(f"unix:{folder / SOCKET}")
    await server.start()
    request = messages.RegisterRequest(version=methods.VERSION, endpoint=SOCKET, resource_name=resource)
    try:
        async with grpc.aio.insecure_channel(f"unix:{folder / paths.KUBELET_SOCKET}") as channel:
            call: Any = channel.unary_unary(methods.path(methods.REGISTRATION, methods.REGISTER))
            await call(request.SerializeToString(), timeout=10)
        yield
    finally:
        await server.stop(None)
