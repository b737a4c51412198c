"""A stand-in for Aliyun's device plugin as kubelet sees it: how it registers, and which ids its units have.

A process on the real node, for a test in which gpushare's plugin takes its place. Like Aliyun's plugin it lets kubelet
choose units at random. Its answers to containers do not matter there.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import grpc

from gpushare.core.facts import names
from gpushare.kubelet import paths
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from gpushare.kubelet.pb import methods
from tests.e2e.harness.cluster import NODE, ROOT, until
from tests.e2e.harness.node_world import NodeWorld
from tests.support.nvml import state

FOLDER = Path(paths.ROOT, paths.DEVICE_PLUGINS)
SOCKET = "aliyungpushare.sock"


@contextlib.asynccontextmanager
async def running(world: NodeWorld, units: int, count: int) -> AsyncIterator[None]:
    """A node of Aliyun's plugin: units under its ids, and the number of GPUs written into the node's status."""
    place = ":".join(map(str, (ROOT, ROOT / "src")))
    process = world.node.machine.run_in(
        "aliyun-plugin", "env", f"PYTHONPATH={place}", sys.executable, "-m", __name__,
        str(units), *(state.uuid(number) for number in range(count)),
    )  # fmt: skip
    offered = {names.GPU_MEM: str(units * count), names.GPU_COUNT: str(count)}
    counted = {"status": {"capacity": {names.GPU_COUNT: str(count)}}}

    async def is_offered() -> bool:
        await world.patch(f"/api/v1/nodes/{NODE}/status", counted)
        return bool((await world.node.object())["status"]["allocatable"].items() >= offered.items())

    try:
        await until("Aliyun's plugin", is_offered, process)
        yield
    finally:
        await world.node.machine.end(process)


async def main(units: int, uuids: Iterable[str]) -> None:
    devices = [
        messages.Device(ID=f"{uuid}-_-{number}", health=methods.HEALTHY) for uuid in uuids for number in range(units)
    ]

    async def lists(request: bytes, context: object) -> AsyncIterator[bytes]:
        yield messages.ListAndWatchResponse(devices=devices).SerializeToString()
        await asyncio.get_running_loop().create_future()

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        methods.OPTIONS: grpc.unary_unary_rpc_method_handler(_options),
        methods.LIST_AND_WATCH: grpc.unary_stream_rpc_method_handler(lists),
        methods.ALLOCATE: grpc.unary_unary_rpc_method_handler(_allocate),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(methods.DEVICE_PLUGIN, handlers),))
    server.add_insecure_port(f"unix:{FOLDER / SOCKET}")
    await server.start()
    await _register()
    await server.wait_for_termination()


async def _options(request: bytes, context: object) -> bytes:
    return messages.DevicePluginOptions().SerializeToString()


async def _allocate(request: bytes, context: object) -> bytes:
    asked = messages.AllocateRequest.FromString(request).container_requests
    answers = [messages.ContainerAllocateResponse(envs={names.VISIBLE_DEVICES: "aliyun"}) for _ in asked]
    return messages.AllocateResponse(container_responses=answers).SerializeToString()


async def _register() -> None:
    request = messages.RegisterRequest(version=methods.VERSION, endpoint=SOCKET, resource_name=names.GPU_MEM)
    async with grpc.aio.insecure_channel(f"unix:{FOLDER / paths.KUBELET_SOCKET}") as channel:
        call = channel.unary_unary(
            methods.path(methods.REGISTRATION, methods.REGISTER),
            request_serializer=messages.RegisterRequest.SerializeToString,
            response_deserializer=messages.Empty.FromString,
        )
        await call(request, timeout=10)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
