"""A device plugin of a few lines, as kubelet sees it: how it registers, which devices it has, what it answers.

A process on the real node, for tests in which devices come from somebody else than gpushare. It lets kubelet choose
among its devices, and never has news of them.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import grpc

from gpushare.kubelet import paths
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.kubelet.pb import methods
from tests.e2e.harness.cluster import ROOT
from tests.e2e.harness.containers import Machine
from tests.e2e.harness.processes import Process

FOLDER = Path(paths.ROOT, paths.DEVICE_PLUGINS)

Answer = Callable[[Iterable[str]], messages.ContainerAllocateResponse]
"""What a container gets that was given these devices."""


def start(machine: Machine, module: str, *words: str) -> Process:
    """Runs a module that serves such a plugin."""
    place = ":".join(map(str, (ROOT, ROOT / "src")))
    name = module.rpartition(".")[2].replace("_", "-")
    return machine.run_in(name, "env", f"PYTHONPATH={place}", sys.executable, "-m", module, *words)


async def serve(socket: str, resource: str, ids: Iterable[str], answer: Answer) -> None:
    """Until it is ended."""
    devices = [messages.Device(ID=one, health=methods.HEALTHY) for one in ids]

    async def lists(request: bytes, context: object) -> AsyncIterator[bytes]:
        yield messages.ListAndWatchResponse(devices=devices).SerializeToString()
        await asyncio.get_running_loop().create_future()

    async def allocate(request: bytes, context: object) -> bytes:
        asked = messages.AllocateRequest.FromString(request).container_requests
        answers = [answer(one.devices_ids) for one in asked]
        return messages.AllocateResponse(container_responses=answers).SerializeToString()

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        methods.OPTIONS: grpc.unary_unary_rpc_method_handler(_options),
        methods.LIST_AND_WATCH: grpc.unary_stream_rpc_method_handler(lists),
        methods.ALLOCATE: grpc.unary_unary_rpc_method_handler(allocate),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(methods.DEVICE_PLUGIN, handlers),))
    server.add_insecure_port(f"unix:{FOLDER / socket}")
    await server.start()
    await _register(socket, resource)
    await server.wait_for_termination()


async def _options(request: bytes, context: object) -> bytes:
    return messages.DevicePluginOptions().SerializeToString()


async def _register(socket: str, resource: str) -> None:
    request = messages.RegisterRequest(version=methods.VERSION, endpoint=socket, resource_name=resource)
    async with grpc.aio.insecure_channel(f"unix:{FOLDER / paths.KUBELET_SOCKET}") as channel:
        call = channel.unary_unary(
            methods.path(methods.REGISTRATION, methods.REGISTER),
            request_serializer=messages.RegisterRequest.SerializeToString,
            response_deserializer=messages.Empty.FromString,
        )
        await call(request, timeout=10)
