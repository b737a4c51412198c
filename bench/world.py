"""A cluster of any size, as bytes the API server and kube-scheduler would send.

Node names of 45 characters, 8 GPUs a node, 4 pods a GPU, pods of 6 KB: what a real cluster of this kind looks like.
Nodes with an even number have one GPU with 20000 MiB free, the others none over 6000: half of them fit `BIG`.
"""

import json
from collections.abc import Iterator
from typing import Any

from gpushare.core.facts import names

GPUS = 8
TOTAL = 81920
PODS_A_GPU = 4
SLOTS = 10
BIG = 15000
HUGE = 70000
SMALL = 1000


def node_name(number: int) -> str:
    return f"gpu-pool-a100-80g-{number:05d}.zone-b.example.net".ljust(45, "x")[:45]


def node(number: int, size: int = 10_000) -> dict[str, Any]:
    name = node_name(number)
    gpus = [
        {"i": i, "uuid": f"GPU-{number:08x}-{i:04x}", "model": "A100", "total": TOTAL, "ok": True} for i in range(GPUS)
    ]
    resources = {names.GPU_MEM: str(GPUS * TOTAL), names.GPU_COUNT: str(GPUS), "cpu": "128", "memory": "1056Gi"}
    made = {
        "metadata": {
            "name": name,
            "uid": f"node-{number}",
            "resourceVersion": "1",
            "annotations": {
                names.NODE_GPUS: json.dumps({"v": 1, "unit": "MiB", "pin": "direct", "slots": SLOTS, "gpus": gpus})
            },
        },
        "status": {"capacity": resources, "allocatable": resources, "images": []},
    }
    return padded(made, ("status", "images"), size, {"names": ["registry.example.net/team/image@sha256:" + "0" * 64]})


def pod(name: str, *amounts: int, node: str = "", gpu: int = 0, size: int = 6_000) -> dict[str, Any]:
    """A pod with one container per amount; bound, with its annotations, if a node is given."""
    uuid = f"GPU-{int(node[18:23]):08x}-{gpu:04x}" if node else ""
    containers = [_container(position, amount) for position, amount in enumerate(amounts)]
    annotations = {f"{names.VISIBLE_PREFIX}{i}": uuid for i in range(len(amounts))} if node else {}
    spec: dict[str, Any] = {"containers": containers, "priority": 0, "schedulerName": "default-scheduler"}
    if node:
        spec["nodeName"] = node
    made = {
        "metadata": {
            "name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations,
        },
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending", "containerStatuses": []},
    }  # fmt: skip
    return padded(made, ("spec", "containers", "0", "env"), size, {"name": "SETTING", "value": "x" * 60}, front=True)


def mixed_pod(name: str, memory: int) -> dict[str, Any]:
    """A share of memory, a whole GPU and an MPS share on two GPUs."""
    made = pod(name, memory, 0, 0)
    for container, resource, amount in zip(
        made["spec"]["containers"], (names.GPU_MEM, names.GPU_COUNT, names.MPS_GPU), (memory, 1, 2), strict=True
    ):
        container["resources"] = {"limits": {resource: str(amount)}}
    made["metadata"]["annotations"] = {names.SLOT_MEMORY[0]: f"{memory // 4}Mi"}
    return made


def _container(position: int, amount: int) -> dict[str, Any]:
    field = {"fieldPath": f"metadata.annotations['{names.VISIBLE_PREFIX}{position}']"}
    return {
        "name": f"c{position}",
        "image": "registry.example.net/team/image:1.0",
        "resources": {"limits": {names.GPU_MEM: str(amount)}, "requests": {names.GPU_MEM: str(amount)}},
        "env": [{"name": names.VISIBLE_DEVICES, "valueFrom": {"fieldRef": field}}],
    }


def gpu_node(number: int, containers: int = 80, *, sampled_at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    """What a node part writes of eight GPUs that do something, with so many containers on them."""
    gpus = [_vitals(number, gpu, containers // GPUS) for gpu in range(GPUS)]
    summary = {
        "gpus": GPUS, "model": "NVIDIA A100-SXM4-80GB", "granted": "74/640 GiB", "used": "61 GiB",
        "utilization": "37%", "temperature": "61 C", "power": "2211 W", "health": "ok",
    }  # fmt: skip
    condition = {"type": "Sampled", "status": "True", "lastTransitionTime": sampled_at, "reason": "Answered"}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name(number), "uid": f"node-{number}"}
    return {
        "apiVersion": "gpushare.io/v1alpha1",
        "kind": "GPUNode",
        "metadata": {
            "name": node_name(number),
            "uid": f"gpunode-{number}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [owner],
            "managedFields": [{"manager": "gpushare", "operation": "Update", "fieldsV1": {"f:status": {"f:gpus": {}}}}],
        },
        "status": {
            "sampledAt": sampled_at, "driver": "580.65.06", "gpus": gpus, "summary": summary,
            "conditions": [condition],
        },
    }  # fmt: skip


def _vitals(number: int, gpu: int, containers: int) -> dict[str, Any]:
    shares = [
        {
            "namespace": "team-a", "pod": f"run-{number}-{gpu}-{copy}", "uid": f"uid-run-{number}-{gpu}-{copy}",
            "container": "c0", "grantedMiB": TOTAL // 16, "usedMiB": TOTAL // 20, "smPercent": 3,
        }
        for copy in range(containers)
    ]  # fmt: skip
    return {
        "index": gpu, "uuid": f"GPU-{number:08x}-{gpu:04x}", "model": "NVIDIA A100-SXM4-80GB", "shares": containers,
        "totalMiB": TOTAL, "grantedMiB": containers * (TOTAL // 16), "usedMiB": containers * (TOTAL // 20),
        "unattributedMiB": 412, "utilization": 37, "temperature": 61, "temperatureLimit": 93, "powerWatts": 276,
        "powerLimitWatts": 400, "knownProcesses": containers, "unknownProcesses": 0, "containers": shares,
    }  # fmt: skip


def padded(
    made: dict[str, Any], path: tuple[str, ...], size: int, entry: dict[str, Any], *, front: bool = False
) -> dict[str, Any]:
    """The object with copies of an entry in one of its lists, until it is that many bytes."""
    place: Any = made
    for key in path:
        place = place[int(key)] if isinstance(place, list) else place[key]
    missing = size - len(json.dumps(made))
    copies = [entry] * max(0, missing // (len(json.dumps(entry)) + 2))
    place[:] = [*copies, *place] if front else [*place, *copies]
    return made


def bound_pods(nodes: int) -> Iterator[dict[str, Any]]:
    """Four pods on each GPU; GPU 0 of every second node is left with room for a BIG one."""
    for number in range(nodes):
        for gpu in range(GPUS):
            amount = (TOTAL - 20_000 if gpu == 0 and number % 2 == 0 else TOTAL - 6_000) // PODS_A_GPU
            for copy in range(PODS_A_GPU):
                yield pod(f"run-{number}-{gpu}-{copy}", amount, node=node_name(number), gpu=gpu)


def question(asked: dict[str, Any], nodes: int) -> bytes:
    """What kube-scheduler posts to filter and prioritize."""
    body = {"Pod": asked, "Nodes": None, "NodeNames": [node_name(number) for number in range(nodes)]}
    return json.dumps(body, separators=(",", ":")).encode()
