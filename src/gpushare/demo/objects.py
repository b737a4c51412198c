"""The demo's nodes, and the pods, Deployments and Jobs that its story creates. Data only."""

from typing import Any, Literal, NamedTuple

from gpushare.core.facts import names
from gpushare.devcluster.nodes import VERSION

Object = dict[str, Any]


class Machine(NamedTuple):
    """`gpus`: the memory of each in MiB. `pin`: who makes a container see its GPU; `nvidia`: it sells replicas of its
    GPUs, as NVIDIA's plugin does. `kubelet`: its version. `slots`: MPS slots of each GPU; `nvidia_whole`: it sells
    whole GPUs as nvidia.com/gpu, too, and shares."""

    ip: str
    gpus: list[int]
    pin: Literal["direct", "plugin", "nvidia"] = "direct"
    kubelet: str = VERSION
    slots: int = 0
    nvidia_whole: bool = False


NODES = {
    "gpu-a": Machine("10.0.0.11", [16276, 16276]),
    "gpu-b": Machine("10.0.0.12", [24268, 11178]),
    "gpu-c": Machine("10.0.0.13", [40536, 40536], slots=10, nvidia_whole=True),
    # An older kubelet: from 1.36 on a device plugin that counts in MiB costs kubelet much, and is not needed.
    "gpu-d": Machine("10.0.0.14", [11441, 11441], "plugin", "v1.35.0-simulated"),
    "gpu-e": Machine("10.0.0.15", [16276], "nvidia"),
}
TIME_SLICED = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}"  # NVIDIA's config of such a node
BY_PLUGIN = "by-plugin"  # the admission policy does not change pods of this namespace: they go to plugin nodes
BY_COUNT = "by-count"  # its label keeps the policy for nvidia.com/gpu away: its pods go to nodes that sell by count
GREEDY, GREEDY_MIB = "jupyter", 2000  # a pod whose container uses more than it asks for
IMAGE = "example/cuda"
FOR_EVER = ["sleep", "infinity"]


def container(name: str, resource: str, amount: int) -> Object:
    limits = {"limits": {resource: amount}}
    return {"name": name, "image": IMAGE, "command": FOR_EVER, "resources": limits}


def namespace(name: str, labels: dict[str, str] | None = None) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}


def pod(
    name: str, *containers: Object, annotations: dict[str, str] | None = None, namespace: str = "default"
) -> Object:
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": list(containers)}}


def web(replicas: int, amount: int) -> Object:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container("main", names.GPU_MEM, amount)]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def batch(name: str, pods: int, amount: int) -> Object:
    inside = {"restartPolicy": "Never", "containers": [container("main", names.GPU_MEM, amount)]}
    spec = {"completions": pods, "parallelism": pods, "template": {"spec": inside}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
