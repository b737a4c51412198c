"""Nodes and pods for a real API server, in the few words of a scenario (`tests/support/objects.py`).

What a real server wants besides: an image, a priority class, CPU and memory of a node, and its Ready condition. What
only the server may say (uid, priority) is left out.
"""

from tests.support import objects
from tests.support.objects import Object

ROOM = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}
IMAGE = "registry.invalid/none:1"  # nothing pulls it


def node(name: str, **words: object) -> Object:
    made = objects.node(name, words)
    made["metadata"]["labels"] |= {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    status = made["status"]
    status["capacity"] |= ROOM
    status["allocatable"] |= ROOM
    status["conditions"] = [READY]
    return made


def pod(scheduler: str = "default-scheduler", **words: object) -> Object:
    made = objects.pod(words)
    metadata, spec = made["metadata"], made["spec"]
    del made["status"], metadata["uid"], metadata["namespace"]
    priority = spec.pop("priority")
    if priority:
        spec["priorityClassName"] = priority_class(priority)["metadata"]["name"]
    spec["schedulerName"] = scheduler
    spec["terminationGracePeriodSeconds"] = 30
    for container in (*spec["containers"], *spec["initContainers"]):
        container["image"] = IMAGE
    return made


def priority_class(priority: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"e2e-{priority}"},
        "value": priority,
    }
