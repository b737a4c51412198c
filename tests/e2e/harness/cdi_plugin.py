"""A device plugin whose devices are described in a CDI file: containers get what that file says.

Its answers name devices, and nothing else: whatever a container has of one, it has through the container runtime.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable

from gpushare.kubelet.pb import deviceplugin_pb2 as messages
from tests.e2e.harness import device_plugin
from tests.e2e.harness.cluster import until
from tests.e2e.harness.kubelet import Node

RESOURCE = KIND = "example.com/thing"
IDS = ("one", "two")
SPEC = "/run/cdi/example.json"


@contextlib.asynccontextmanager
async def running(node: Node) -> AsyncIterator[None]:
    """A node that offers its devices."""
    file = node.machine.inside(SPEC)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": KIND, "devices": list(map(_device, IDS))}))
    process = device_plugin.start(node.machine, __name__)

    async def is_offered() -> bool:
        return bool((await node.object())["status"]["allocatable"].get(RESOURCE) == str(len(IDS)))

    try:
        await until("the plugin", is_offered, process)
        yield
    finally:
        await node.machine.end(process)
        file.unlink()


def _device(name: str) -> dict[str, object]:
    """/dev/zero under another name, and a variable."""
    node = {"path": f"/dev/thing-{name}", "hostPath": "/dev/zero"}
    return {"name": name, "containerEdits": {"env": [f"THING={name}"], "deviceNodes": [node]}}


def answer(devices: Iterable[str]) -> messages.ContainerAllocateResponse:
    named = [messages.CDIDevice(name=f"{KIND}={device}") for device in devices]
    return messages.ContainerAllocateResponse(cdi_devices=named)


if __name__ == "__main__":
    asyncio.run(device_plugin.serve("cdi.sock", RESOURCE, IDS, answer))
