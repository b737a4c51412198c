"""Clusters in a few words, as the JSON an API server gives, and a source that hands them out.

Each world is what one golden file shows: `WORLDS` maps its name to its nodes and pods. `demo` is the cluster that all
examples of the documentation speak of.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gpushare.core.facts import names
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view import vitals
from gpushare.view.snapshot import NODES, PODS
from gpushare.view.source import NotFound
from gpushare.view.unhealthy import PATH as UNHEALTHY_MAPS

Json = dict[str, Any]
World = tuple[list[Json], list[Json]]

NOW = datetime(2026, 11, 15, 12, 30, 5, tzinfo=UTC)


class Cluster:
    """A source. `failing` is raised instead of an answer while it is set."""

    def __init__(self, world: World, gpunodes: list[Any] | None = None) -> None:
        """`gpunodes`: None if the cluster has no such kind."""
        self.nodes, self.pods = world
        self.gpunodes = gpunodes
        self.maps: list[Json] = []  # ConfigMaps of kube-system
        self.failing: UserError | None = None
        self.asked: list[str] = []

    def get(self, path: str) -> bytes:
        self.asked.append(path)
        if self.failing is not None:
            raise self.failing
        if path == vitals.ALL and self.gpunodes is None:
            raise NotFound(f"not there: {path}", "404", "kubectl api-resources", CLUSTER_NOT_ASKED)
        lists = {NODES: self.nodes, PODS: self.pods, UNHEALTHY_MAPS: self.maps, vitals.ALL: self.gpunodes}
        return json.dumps({"items": lists[path]}).encode()


def cluster(world: str) -> Cluster:
    """One of `WORLDS`, with what its GPUs do if it says that."""
    return Cluster(WORLDS[world](), GPUNODES[world]() if world in GPUNODES else None)


def node(
    name: str,
    *totals: int,
    ip: str | None = "10.0.0.11",
    unit: str = "MiB",
    unhealthy: Sequence[int] = (),
    indices: Sequence[int] | None = None,
    aliyun: bool = False,
    direct: bool = False,
    labels: Mapping[str, str] | None = None,
    capacity: Mapping[str, object] | None = None,
    allocatable: Mapping[str, object] | None = None,
) -> Json:
    """A node with GPUs of these sizes. `aliyun`: one of Aliyun's plugin, which publishes nothing."""
    offered: Mapping[str, object] = {names.GPU_MEM: str(sum(totals)), names.GPU_COUNT: str(len(totals))}
    offered = (offered if totals else {}) if capacity is None else capacity
    annotations = {}
    if totals and not aliyun:
        places = indices if indices is not None else range(len(totals))
        gpus = [
            {"i": i, "uuid": f"GPU-{name}-{i}", "total": total, "ok": i not in unhealthy}
            for i, total in zip(places, totals, strict=True)
        ]
        annotations[names.NODE_GPUS] = json.dumps(
            {"v": 1, "unit": unit, "pin": "direct" if direct else "plugin", "gpus": gpus}
        )
    addresses = [{"type": "Hostname", "address": name}]
    addresses += [{"type": "InternalIP", "address": ip}] if ip else []
    return {
        "metadata": {"name": name, "annotations": annotations, "labels": dict(labels or {})},
        "status": {
            "capacity": offered,
            "allocatable": offered if allocatable is None else allocatable,
            "addresses": addresses,
        },
    }


def pod(
    name: str,
    *memory: object,
    on: str = "",
    at: Sequence[Sequence[int]] | int | None = None,
    namespace: str = "default",
    whole: int = 0,
    counted: Mapping[str, int] | None = None,
    split: int = 0,
    direct: bool = False,
    age: float = 600,
    phase: str = "",
    notes: Mapping[str, str] | None = None,
    nominated: str = "",
    priority: int = 0,
    terminating: bool = False,
) -> Json:
    """A pod whose containers ask `memory` each, or `whole` GPUs, or what is `counted` by resource.

    `at`: the GPUs of each container, as our annotation says it; a number: the GPU of Aliyun's annotation.
    `direct`: the admission policy saw it, so its containers learn their GPUs from annotations.
    """
    limits: list[Json] = [{names.GPU_MEM: amount} for amount in memory]
    limits += [{names.GPU_COUNT: str(whole)}] if whole else []
    limits += [{name: str(amount) for name, amount in counted.items()}] if counted else []
    annotations = dict(notes or {})
    if split:
        annotations[names.GPU_COUNT] = str(split)
    if isinstance(at, int):
        annotations[names.ALIYUN_IDX] = str(at)
    elif at is not None:
        each = [int(str(amount)) // (split or 1) for amount in memory]
        allocation = {str(i): {str(gpu): each[i] if each else 1 for gpu in gpus} for i, gpus in enumerate(at)}
        annotations[names.ALLOCATION] = json.dumps(allocation)
        annotations[names.ALIYUN_IDX] = str(at[0][0])
    created = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}/{name}",
            "creationTimestamp": created,
            "annotations": annotations,
            **({"deletionTimestamp": created} if terminating else {}),
        },
        "spec": {
            "nodeName": on or None,
            "priority": priority,
            "containers": [
                {
                    "name": ("main", "helper", "third")[i],
                    "resources": {"limits": limit},
                    "env": [env(f"gpushare.io/visible-{i}")] if direct else [],
                }
                for i, limit in enumerate(limits)
            ],
        },
        "status": {"phase": phase or ("Running" if on else "Pending"), "nominatedNodeName": nominated or None},
    }


def seller(name: str, *totals: int, resource: str = names.NVIDIA_GPU, replicas: int = 1, sharing: str = "none") -> Json:
    """A node that sells GPUs of these sizes by count, through gpushare."""
    offered = {resource: str(len(totals) * replicas)}
    made = node(name, *totals, ip="10.0.0.15", capacity=offered)
    publish(made, pin="nvidia", sell="gpus", sold=[{"resource": resource, "replicas": replicas, "sharing": sharing}])
    return made


def publish(made: Json, **more: Any) -> None:
    """More that a node says of its GPUs."""
    annotations = made["metadata"]["annotations"]
    annotations[names.NODE_GPUS] = json.dumps(json.loads(annotations[names.NODE_GPUS]) | more)


def gpunode(name: str, *gpus: Json, age: float = 9, **status: Any) -> Json:
    """What a node publishes of what its GPUs do, sampled so many seconds ago."""
    sampled = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    numbered = [{"index": i, "uuid": f"GPU-{name}-{i}", **gpu} for i, gpu in enumerate(gpus)]
    return {"metadata": {"name": name}, "status": {"sampledAt": sampled, "gpus": numbered, **status}}


def container(
    pod: str, asked: int, used: int | None, *, name: str = "main", namespace: str = "default", uid: str = ""
) -> Json:
    """A container on a GPU, as a GPUNode has it."""
    made = {"namespace": namespace, "pod": pod, "uid": uid or f"{namespace}/{pod}", "container": name}
    return made | {"grantedMiB": asked} | ({} if used is None else {"usedMiB": used})


def env(key: str) -> Json:
    return {"name": names.VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}


def demo_nodes() -> list[Json]:
    return [
        node("gpu-a", 16276, 16276),
        node("gpu-b", 24268, 11178, ip="10.0.0.12"),
        node("gpu-c", 40536, 40536, ip="10.0.0.13"),
    ]


def demo_pods() -> list[Json]:
    """After step 5 of the demo: 46 pods, 8302 MiB free."""
    pods = [pod(f"web-{i}", 3500, on="gpu-b", at=[[1]]) for i in (1, 2, 3)]
    pods += [
        pod("vision", 14000, 12000, on="gpu-a", at=[[0], [1]]),
        pod("train", 40000, split=2, on="gpu-c", at=[[0, 1]]),
        pod("solo", whole=1, on="gpu-b", at=[[0]]),
    ]
    places = [("gpu-a", 0)] * 2 + [("gpu-a", 1)] * 4 + [("gpu-c", 0)] * 20 + [("gpu-c", 1)] * 14
    return pods + [pod(f"batch-{i:02}", 1000, on=name, at=[[gpu]]) for i, (name, gpu) in enumerate(places)]


def documented() -> World:
    """With a fourth node that has an unhealthy GPU, and two pods that wait."""
    nodes = [*demo_nodes(), node("gpu-d", 16276, 16276, 16276, ip="10.0.0.14", unhealthy=[2])]
    pods = [
        *demo_pods(),
        pod("embed", 4000, 3000, on="gpu-d", at=[[0], [1]], namespace="ml"),
        pod("rank-0", 24000, split=2, on="gpu-d", at=[[0, 1]], namespace="ml"),
        pod("old-7", 12000, on="gpu-d", at=[[2]], namespace="ml"),
        pod("llm", 7000, age=41),
        pod("probe", "4Gi", namespace="ml", age=200),
    ]
    return nodes, pods


def aliyun() -> World:
    """The cluster of Aliyun's plugin that its contract shows; one pod was bound by somebody else."""
    nodes = [
        node("gpu-node-2", *[15] * 4, ip="10.0.0.12", aliyun=True),
        node("gpu-node-1", *[15] * 2, aliyun=True),
        node("cpu-node", ip="10.0.0.13"),
    ]
    pods = [
        pod("llm-infer-6c9d8f7b5-q2x7k", 6, on="gpu-node-1", at=0, namespace="prod"),
        pod("bert-embed-0", 8, on="gpu-node-1", at=0, namespace="prod"),
        pod("notebook-alice-0", 4, on="gpu-node-1", at=1, namespace="research"),
        pod("stray-77f5c-abcde", 3, on="gpu-node-1"),
        pod("train-x", 15, on="gpu-node-2", at=0, namespace="prod"),
        pod("train-y", 10, on="gpu-node-2", at=2, namespace="prod"),
        pod("done", 15, on="gpu-node-2", at=1, namespace="prod", phase="Succeeded"),
        pod("web", on="gpu-node-2", namespace="prod"),
    ]
    return nodes, pods


def both_units() -> World:
    nodes = [
        node("fine", 16276, 16276),
        node("coarse", 80, 80, unit="GiB", ip="10.0.0.12"),
        node("older", *[15] * 2, aliyun=True, ip="10.0.0.13"),
    ]
    pods = [
        pod("a", 4000, on="fine", at=[[1]]),
        pod("b", 30, on="coarse", at=[[0]]),
        pod("c", 7, on="older", at=1),
        pod("d", 2, on="older"),
        pod("big", 20000, age=7300),
    ]
    return nodes, pods


def several_gpus() -> World:
    nodes = [node("big", *[40536] * 4, direct=True), node("gaps", 16276, 16276, indices=[0, 3], ip=None)]
    uuids = {"gpushare.io/visible-0": "GPU-big-3,GPU-big-1", "gpushare.io/visible-1": "GPU-big-0"}
    pods = [
        pod("pinned", 20000, split=2, direct=True, on="big", notes=uuids, age=90),
        pod("beside", 20000, 3000, direct=True, on="big", notes={**uuids, "gpushare.io/visible-0": "GPU-big-2"}),
        pod("ring", 30000, split=2, on="gaps", at=[[0, 3]], priority=100, terminating=True),
        pod("wide", 150000, split=4, direct=True, age=4000),
        pod("pair", 38000, 36000, direct=True),
        pod("all", whole=4, direct=True),
        pod("classic", 2000, 1000),
    ]
    return nodes, pods


def unhealthy() -> World:
    nodes = [node("a", 16276, 16276, unhealthy=[0]), node("b", 16276, unhealthy=[0], ip="10.0.0.12")]
    pods = [pod("p", 4000, on="a", at=[[0]]), pod("full", 16276, on="b", at=[[0]]), pod("waits", 16276, age=5)]
    pods.append(pod("q", 1000, on="a", at=[[1]]))
    return nodes, pods


def waits() -> World:
    """Every kind of pod that waits."""
    nodes = [node("a", 16276), node("b", 8000, ip="10.0.0.12")]
    pods = [
        pod("full", 16000, on="a", at=[[0]]),
        pod("fits", 1000),
        pod("large", 50000),
        pod("odd", 20001, split=2),
        pod("policy", 1000, notes={names.POLICY: "pack"}),
        pod("bytes", 10_000_000_000),
        pod("fraction", "1.5"),
        pod("both", 9000, namespace="ml", age=100_000),
        pod("many", 9000, 8000, 7000, namespace="ml", age=1_000_000),
        pod("two", whole=2, namespace="ml"),
        pod("one", whole=1, namespace="ml"),
        pod("going", 100, terminating=True),
        pod("ended", 100, phase="Failed"),
    ]
    pods += [pod(f"row-{i:02}", 9000, namespace="z", age=i) for i in range(9)]
    return nodes, pods


def strays() -> World:
    """Pods on a node of which nobody knows the GPU."""
    nodes = [
        node("a", 16276, 16276),
        node("b", 15, 15, aliyun=True, ip="10.0.0.12", allocatable={names.GPU_MEM: "0", names.GPU_COUNT: "0"}),
        node("c", ip="10.0.0.13", capacity={names.GPU_MEM: "30"}),
    ]
    nodes[2]["status"]["allocatable"] = nodes[2]["status"]["capacity"]
    pods = [
        pod("fine", 1000, on="a", at=[[0]]),
        pod("stray-1", 3000, on="a"),
        pod("stray-2", 2000, on="a", namespace="ml"),
        pod("stray-3", whole=1, on="a", namespace="ml"),
        pod("past", 4, on="b", at=7),
        pod("there", 5, on="b", at=1),
        pod("uncounted", 6, on="c", at=0),
    ]
    return nodes, pods


def thousand() -> World:
    nodes = [node(f"gpu-{i:04}", *[16276] * 4, ip=f"10.0.{i // 250}.{i % 250}") for i in range(1000)]
    pods = [pod(f"p-{i:05}", 1000 + i % 7, on=f"gpu-{i % 1000:04}", at=[[i % 4]]) for i in range(10_000)]
    return nodes, pods


def sold() -> World:
    """Nodes that sell by count beside one that shares: ours, and those of NVIDIA's own plugin."""
    slices = "nvidia.com/mig-1g.10gb"
    labels = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.sharing-strategy": "none"}
    lame = {names.NVIDIA_GPU: "7"}
    whole = node("gpu-h", 16276, direct=True, capacity={names.GPU_MEM: "16276", names.NVIDIA_GPU: "1"})
    publish(whole, nvidia="whole")
    nodes = [
        node("gpu-a", 16276, 16276),
        seller("gpu-e", 16276, replicas=4, sharing="time-slicing"),
        node("gpu-f", labels=labels, capacity={names.NVIDIA_GPU: "8", names.GPU_MEM: "0"}, allocatable=lame),
        node("gpu-g", capacity={slices: "4", "nvidia.com/gpu.shared": "10", names.NVIDIA_GPU: "0"}),
        whole,
    ]
    pods = [
        pod("web", 4000, on="gpu-a", at=[[0]]),
        pod("infer-1", counted={names.NVIDIA_GPU: 1}, on="gpu-e"),
        pod("infer-2", counted={names.NVIDIA_GPU: 1}, on="gpu-e", terminating=True),
        pod("done", counted={names.NVIDIA_GPU: 1}, on="gpu-e", phase="Succeeded"),
        pod("rank-0", counted={names.NVIDIA_GPU: 7}, on="gpu-f", namespace="ml", priority=100),
        pod("both", counted={slices: 1, "nvidia.com/gpu.shared": 2}, on="gpu-g", namespace="ml"),
        pod("llm", 20000, age=41),
        pod("four", counted={names.NVIDIA_GPU: 4}, age=300),
        pod("nine", counted={names.NVIDIA_GPU: 9}, namespace="ml"),
        pod("slice", counted={"nvidia.com/mig-3g.40gb": 1}, namespace="ml"),
        pod("starts", counted={names.NVIDIA_GPU: 2}, namespace="ml", age=1),
        pod("going", counted={names.NVIDIA_GPU: 2}, namespace="ml", terminating=True),
    ]
    return nodes, pods


def slots() -> World:
    """MPS shares beside shares of memory, on a node that also sells nvidia.com/gpu. A GPU is out of slots, not of
    memory."""
    mps = node("gpu-c", 16276, 16276, direct=True)
    publish(mps, slots=2, nvidia="whole")
    pods = [
        shared("one", on="gpu-c", gpus=[0], each=4000),
        shared("two", on="gpu-c", gpus=[0, 1], each=3000),
        pod("web", 2000, direct=True, on="gpu-c", notes={"gpushare.io/visible-0": "GPU-gpu-c-1"}),
        shared("waits", gpus=[0, 1]),
        pod("small", counted={names.MPS_GPU: 2}, direct=True, notes={"GPUrequest": "1Gi"}, age=90),
    ]
    return [mps, node("gpu-d", 15, unit="GiB", ip="10.0.0.14")], pods


def mps_down() -> World:
    """A node that sells MPS slots, and whose MPS daemon does not work."""
    mps = node("gpu-c", 16276, direct=True)
    publish(mps, slots=2, mps='the MPS daemon has not answered "get_server_list" within 5 s')
    return [mps], [shared("one", on="gpu-c", gpus=[0], each=4000), shared("waits", gpus=[0])]


def shared(name: str, *, gpus: Sequence[int], on: str = "", each: int = 0) -> Json:
    """A pod with an MPS share on each of these GPUs; one that waits asks for as many."""
    uuids = ",".join(f"GPU-{on}-{gpu}" for gpu in gpus)
    chosen = {names.ALLOCATION: json.dumps({"0": dict.fromkeys(map(str, gpus), each)}), "gpushare.io/visible-0": uuids}
    return pod(name, counted={names.MPS_GPU: len(gpus)}, direct=True, on=on, notes=chosen if on else None)


def foreign() -> World:
    """No API server allows such names; a table should stand all the same."""
    return [node("gpu-größe", 16276), node("显卡", 16276, ip="10.0.0.12")], [
        pod("数据", 4000, on="显卡", at=[[0]]),
        pod("naïve", 1000, on="gpu-größe", at=[[0]]),
        pod("等待", 20000, namespace="名"),
    ]


def measured() -> World:
    """Nodes that tell what their GPUs do, one that told it too long ago, and one that tells nothing."""
    nodes = [
        node("gpu-a", 16276, 16276),
        node("gpu-b", 24268, 11178, ip="10.0.0.12"),
        node("gpu-c", 40536, ip="10.0.0.13"),
        node("gpu-d", 40536, ip="10.0.0.14"),
        node("gpu-e", 40536, ip="10.0.0.15"),
        node("cpu-1"),
    ]
    pods = [
        pod("serve-a", 8000, on="gpu-a", at=[[1]], namespace="ml"),
        pod("serve-b", 6000, on="gpu-a", at=[[1]], namespace="ml"),
        pod("vision", 14000, 2000, on="gpu-a", at=[[0], [1]]),
        pod("alone", 10000, on="gpu-b", at=[[1]]),
        pod("old", 2000, on="gpu-c", at=[[0]]),
        pod("new", 2000, on="gpu-d", at=[[0]]),
        pod("silent", 2000, on="gpu-e", at=[[0]]),
    ]
    return nodes, pods


def measured_gpunodes() -> list[Any]:
    """`serve-a` and `alone` use more than they asked. Another pod of the name `serve-b` was there before."""
    serving = [
        container("serve-a", 8000, 9000, namespace="ml"),
        container("serve-b", 6000, 500, namespace="ml", uid="another"),
        container("serve-b", 6000, 5000, namespace="ml"),
        container("vision", 2000, 2100, name="helper"),
    ]
    seen = [container("vision", 14000, 13000)]
    alone = [container("alone", 10000, 10600)]
    return [
        gpunode(
            "gpu-a",
            {"usedMiB": 13412, "utilization": 61, "temperature": 58, "powerWatts": 201, "containers": seen},
            {"usedMiB": 16104, "utilization": 98, "temperature": 79, "powerWatts": 249, "containers": serving},
        ),
        gpunode("gpu-b", {"utilization": 0, "usedMiB": 0}, {"usedMiB": 10900, "containers": alone}),
        gpunode("gpu-c", {"usedMiB": 700, "utilization": 5}, age=725, conditions=[
            {"type": "Sampled", "status": "False", "message": "NVML does not answer"}]),
        gpunode("gpu-e", {"usedMiB": 2031, "utilization": 12, "containers": [container("silent", 2000, None)]},
                containersUnknown="the pids of the host are not visible (hostPID)"),
        gpunode("cpu-1", {"usedMiB": 1}),
        gpunode("gone", {"usedMiB": 1}),
    ]  # fmt: skip


GPUNODES: dict[str, Callable[[], list[Any]]] = {"measured": measured_gpunodes}
WORLDS: dict[str, Callable[[], World]] = {
    "empty": lambda: ([], []),
    "no-gpu-nodes": lambda: ([node("cpu-1"), node("gpu-b", labels={"gpushare": "true"})], [pod("waits", 1)]),
    "no-gpu-nodes-no-label": lambda: ([node("cpu-1")], []),
    "documented": documented,
    "aliyun": aliyun,
    "both-units": both_units,
    "several-gpus": several_gpus,
    "unhealthy": unhealthy,
    "waiting": waits,
    "strays": strays,
    "foreign-names": foreign,
    "sold": sold,
    "slots": slots,
    "mps-down": mps_down,
    "measured": measured,
    "only-sold": lambda: ([node("cpu-1"), seller("gpu-e", 16276, 16276)], []),
}
