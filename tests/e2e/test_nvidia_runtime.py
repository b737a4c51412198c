"""The real node has a stand-in for NVIDIA's container runtime: containers see the GPUs they ask for, and no others."""

from collections.abc import AsyncIterator

import pytest

from tests.e2e.harness import gpu_host, images, snapshot
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.gpu_host import GpuHost
from tests.e2e.harness.kubelet import Node
from tests.support import api_client, wait
from tests.support.objects import Object

CLASS = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
LOOK = """
import pynvml
pynvml.nvmlInit()
for i in range(pynvml.nvmlDeviceGetCount()):
    print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i)))
"""


@pytest.fixture
async def host(cluster: Cluster, node: Node) -> AsyncIterator[GpuHost]:
    host = GpuHost(node.machine)
    await host.install([16276, 16276])
    await cluster.apply(CLASS)
    async with cluster.scheduler(extenders=[]):
        yield host
    await cluster.kubectl("delete", "runtimeclass", "nvidia")


async def test_a_container_sees_the_gpus_it_asks_for(
    cluster: Cluster, node: Node, host: GpuHost, api: api_client.Api
) -> None:
    before = await snapshot.taken(node)
    first, second = host.uuids()
    asked = {"all": "all", "one": second, "index": "0", "void": "void"}
    for name, devices in asked.items():
        await api.create(api.pods, _pod(name, devices))
    where = ("--namespace", api.namespace)
    for name in asked:
        phase = "Failed" if name == "void" else "Succeeded"
        await cluster.kubectl("wait", *where, f"--for=jsonpath={{.status.phase}}={phase}", f"pod/{name}")
    seen = {name: await cluster.kubectl("logs", *where, name) for name in asked}
    assert "NVMLError" in seen.pop("void")
    assert seen == {"all": f"{first}\n{second}\n", "one": f"{second}\n", "index": f"{first}\n"}
    await cluster.kubectl("delete", *where, "pods", "--all")
    assert await snapshot.taken(node) == before


async def test_without_the_driver_such_a_container_does_not_start_and_kubelet_says_why(
    cluster: Cluster, host: GpuHost, api: api_client.Api
) -> None:
    with host.without(gpu_host.LIBRARY):
        await api.create(api.pods, _pod("early", "all"))

        async def said() -> bool:
            shown = await cluster.kubectl("get", "pod", "early", "--namespace", api.namespace, "-o", "json")
            return "load library failed: libnvidia-ml.so.1" in shown

        await wait.eventually_asked(said, "kubelet says why", 30)


async def test_the_machine_shows_its_gpus_as_pci_devices(node: Node, host: GpuHost) -> None:
    assert len(host.uuids()) == len(list(node.machine.pci.glob("*/vendor")))


def _pod(name: str, devices: str) -> Object:
    container = {
        "name": "main", "image": images.PRODUCT, "command": ["python3", "-c", LOOK],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": devices}],
    }  # fmt: skip
    spec = {"containers": [container], "runtimeClassName": "nvidia", "restartPolicy": "Never"}
    return {"metadata": {"name": name}, "spec": {**spec, "terminationGracePeriodSeconds": 0}}
