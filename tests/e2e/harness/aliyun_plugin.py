"""A stand-in for Aliyun's device plugin as kubelet sees it: how it registers, and which ids its units have.

For a test in which gpushare's plugin takes its place. Like Aliyun's plugin it lets kubelet choose units at random. Its
answers to containers do not matter there.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable

from gpushare.core.facts import names
from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from tests.e2e.harness import device_plugin
from tests.e2e.harness.cluster import NODE, until
from tests.e2e.harness.node_world import NodeWorld
from tests.support.nvml import state

SOCKET = "aliyungpushare.sock"


@contextlib.asynccontextmanager
async def running(world: NodeWorld, units: int, count: int) -> AsyncIterator[None]:
    """A node of Aliyun's plugin: units under its ids, and the number of GPUs written into the node's status."""
    uuids = (state.uuid(number) for number in range(count))
    process = device_plugin.start(world.node.machine, __name__, str(units), *uuids)
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


def answer(devices: Iterable[str]) -> messages.ContainerAllocateResponse:
    return messages.ContainerAllocateResponse(envs={names.VISIBLE_DEVICES: "aliyun"})


if __name__ == "__main__":
    units, uuids = int(sys.argv[1]), sys.argv[2:]
    ids = [f"{uuid}-_-{number}" for uuid in uuids for number in range(units)]
    asyncio.run(device_plugin.serve(SOCKET, names.GPU_MEM, ids, answer))
