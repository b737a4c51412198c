"""Node objects of the embedded cluster, with simulated GPUs. Pure.

`simulated_node` publishes its GPUs as `gpushare node` does (annotation and capacity) and pins directly. `bare_node`
publishes nothing: the real `gpushare node` can do that. The other fields are for kubectl to show.
"""

import copy
import uuid
from collections.abc import Sequence
from typing import Final

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, Pin
from gpushare.devcluster.apiserver.status import Object

GPUS: Final = (16276, 16276)  # MiB
MODEL: Final = "Simulated GPU"
ROOM: Final = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "250"}
VERSION: Final = "v1.36.0-simulated"
_SYSTEM: Final = {
    "architecture": "amd64",
    "bootID": "",
    "containerRuntimeVersion": "simulated://1",
    "kernelVersion": "simulated",
    "kubeProxyVersion": "",
    "machineID": "",
    "operatingSystem": "linux",
    "osImage": "gpushare devcluster",
    "systemUUID": "",
}
# Of each condition: its status, and the reason and message that go with it.
_CONDITIONS: Final = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "simulated"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "simulated"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "simulated"),
    "Ready": ("True", "KubeletReady", "simulated: nothing runs here"),
}
_GPU_NAMES: Final = uuid.UUID("6b1f0c52-6a0e-4d0b-9a55-0f6f6a1f2a10")  # GPUs have the same uuids every time


def simulated_node(
    name: str, ip: str, gpus: Sequence[int] = GPUS, model: str = MODEL, labels: dict[str, str] | None = None
) -> Object:
    """`gpus`: the MiB of each GPU. Nodes with the same name have the same GPUs."""
    listed = [Gpu(i, gpu_uuid(name, i), total, model=model) for i, total in enumerate(gpus)]
    node = bare_node(name, ip, labels)
    node["metadata"]["annotations"] = {names.NODE_GPUS: node_gpus.write(names.MIB, Pin.DIRECT, listed)}
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts |= {names.GPU_MEM: str(sum(gpus)), names.GPU_COUNT: str(len(gpus))}
    return node


def bare_node(name: str, ip: str, labels: dict[str, str] | None = None, version: str = VERSION) -> Object:
    """As kubelet registers it, without GPUs. `version`: of its kubelet."""
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": own | (labels or {})},
        "spec": {},
        "status": {
            "capacity": dict(ROOM),
            "allocatable": dict(ROOM),
            "addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}],
            "conditions": [_condition(type_) for type_ in _CONDITIONS],
            "nodeInfo": _SYSTEM | {"kubeletVersion": version},
        },
    }


def gpu_uuid(node: str, index: int) -> str:
    return f"GPU-{uuid.uuid5(_GPU_NAMES, f'{node}/{index}')}"


def heard_at(node: Object, now: str) -> Object:
    """A copy of the node with a time in its conditions. There are no later heartbeats."""
    dated = copy.deepcopy(node)
    for condition in dated["status"].get("conditions") or []:
        condition |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return dated


def _condition(type_: str) -> Object:
    status, reason, message = _CONDITIONS[type_]
    return {"type": type_, "status": status, "reason": reason, "message": message}
