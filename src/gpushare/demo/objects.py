"""What the demo asks of its cluster: nodes, and pods in the words of users.

Data only. `story` creates these one after the other.
"""

from typing import Any

from gpushare.core import names

Object = dict[str, Any]
NODES = {  # address, and the memory of each GPU in MiB
    "gpu-a": ("10.0.0.11", [16276, 16276]),
    "gpu-b": ("10.0.0.12", [24268, 11178]),
    "gpu-c": ("10.0.0.13", [40536, 40536]),
}
IMAGE = "example/cuda"
FOR_EVER = ["sleep", "infinity"]


def container(name: str, resource: str, amount: int) -> Object:
    limits = {"limits": {resource: amount}}
    return {"name": name, "image": IMAGE, "command": FOR_EVER, "resources": limits}


def pod(name: str, *containers: Object, annotations: dict[str, str] | None = None) -> Object:
    metadata = {"name": name, "annotations": annotations or {}}
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
