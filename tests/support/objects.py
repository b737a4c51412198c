"""The one builder of pods and nodes in tests: from a few words to the JSON that an API server keeps.

The words are those of a scenario: `pod({"name": "p", "containers": {"main": 6000}})`. An unknown word is an error,
so that a misspelt `prioirty` does not make a test pass. `tests.support.builders` has the same as facts of the core.
"""

import json
from typing import Any

from gpushare.core.facts import names
from gpushare.core.facts.model import Pin

Object = dict[str, Any]

NODE_WORDS = {
    "gpus", "pin", "unit", "state", "capacity", "count", "allocatable", "nvidia", "annotation", "labels", "taints",
    "cordoned", "largest", "slots", "mps", "only", "whole", "sold", "cpu", "memory",
}  # fmt: skip
GPU_WORDS = {"total", "i", "uuid", "ok", "why", "model"}
POD_WORDS = {
    "name", "namespace", "uid", "containers", "init", "direct", "priority", "split", "labels", "annotations", "unit",
    "policy", "node", "phase", "reason", "nominated", "claim", "created", "deleting", "waits", "replicas",
    "selector", "affinity", "tolerates", "scheduler",
}  # fmt: skip
CONTAINER_WORDS = {"mem", "count", "mps", "nvidia", "cpu", "memory", "sidecar", "env", "envs"}
RESOURCES = {"mem": names.GPU_MEM, "count": names.GPU_COUNT, "mps": names.MPS_GPU, "nvidia": names.NVIDIA_GPU}
_SUFFIXES = ("", "k", "M", "G", "T", "P", "E")


def known(given: Object, words: set[str], what: str) -> None:
    unknown = set(given) - words
    assert not unknown, f"{what}: unknown {sorted(unknown)}; known are {sorted(words)}"


def quantity(amount: object) -> str:
    """A number as the API server writes it back, 7000 as `7k`; what is written as text stays as it is."""
    if not isinstance(amount, int):
        return str(amount)
    suffix = 0
    while amount and amount % 1000 == 0 and suffix < len(_SUFFIXES) - 1:
        amount, suffix = amount // 1000, suffix + 1
    return f"{amount}{_SUFFIXES[suffix]}"


def pods(given: Object) -> list[Object]:
    """The pod, or as many as `replicas` says: web-0, web-1, ..."""
    known(given, POD_WORDS, f"pod {given.get('name')}")
    if "replicas" not in given:
        return [pod(given)]
    return [pod({**given, "name": f"{given['name']}-{i}"}) for i in range(given["replicas"])]


def pod(given: Object) -> Object:
    annotations: Object = {key: str(value) for key, value in given.get("annotations", {}).items()}
    keys = (("split", names.GPU_COUNT), ("unit", names.MEMORY_UNIT), ("policy", names.POLICY))
    annotations |= {key: str(given[word]) for word, key in keys if word in given}
    direct = given.get("direct", False)
    metadata = {
        "name": given["name"],
        "namespace": given.get("namespace", "default"),
        "uid": given.get("uid", f"{given['name']}-uid"),
        "annotations": annotations,
        "labels": {key: str(value) for key, value in given.get("labels", {}).items()},
    }
    spec: Object = {
        "schedulerName": given.get("scheduler", "default-scheduler"),
        "containers": _containers(given.get("containers", {"main": None}), "", direct),
        "initContainers": _containers(given.get("init", {}), "init-", direct),
        "priority": given.get("priority", 0),
    }
    spec |= rules(given)
    if given.get("claim"):
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    made = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
    if "created" in given:
        metadata["creationTimestamp"] = given["created"]
    change(made, given)
    return made


def new(made: Object) -> Object:
    """The pod as somebody creates it: with an image, without what only the API server writes."""
    del made["status"], made["metadata"]["uid"]
    for container in (*made["spec"]["containers"], *made["spec"]["initContainers"]):
        container["image"] = "busybox"
    return made


def rules(given: Object) -> Object:
    """What of a spec keeps a pod to some nodes: a `selector`, the terms of an `affinity`, and what it `tolerates`."""
    spec: Object = {}
    if "selector" in given:
        spec["nodeSelector"] = given["selector"]
    if "affinity" in given:
        required = {"nodeSelectorTerms": [_term(text) for text in given["affinity"]]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if "tolerates" in given:
        spec["tolerations"] = [toleration(text) for text in given["tolerates"]]
    return spec


def _term(text: str) -> Object:
    """`zone In a b, gpus Gt 4`; what is said of `metadata.name` is said of the node's name."""
    term: Object = {}
    for condition in text.split(","):
        key, operator, *values = condition.split()
        found = {"key": key, "operator": operator} | ({"values": values} if values else {})
        term.setdefault("matchFields" if key == "metadata.name" else "matchExpressions", []).append(found)
    return term


def taint(text: str) -> Object:
    """`dedicated=train:NoSchedule`, as kubectl takes it."""
    label, _, effect = text.partition(":")
    key, _, value = label.partition("=")
    return {"key": key, "value": value, "effect": effect}


def toleration(text: str) -> Object:
    """Of exactly such a taint, or of any taint with this key."""
    return taint(text) | {"operator": "Equal"} if ":" in text else {"key": text, "operator": "Exists"}


def change(made: Object, given: Object) -> None:
    """What may happen to a pod after it was created."""
    status: Object = made["status"]
    if "node" in given:
        made["spec"]["nodeName"] = given["node"]
    for word, key in (("phase", "phase"), ("reason", "reason"), ("nominated", "nominatedNodeName")):
        if word in given:
            status[key] = given[word]
    if given.get("deleting"):
        made["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    if "waits" in given:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": given["waits"]}
        status["conditions"] = [condition]


def _containers(given: Object, prefix: str, direct: bool) -> list[Object]:
    return [_container(name, asked, f"{prefix}{i}", direct) for i, (name, asked) in enumerate(given.items())]


def _container(name: str, asked: object, place: str, direct: bool) -> Object:
    words: Object = asked if isinstance(asked, dict) else {"mem": asked}
    known(words, CONTAINER_WORDS, f"container {name}")
    limits = {resource: quantity(words[word]) for word, resource in RESOURCES.items() if words.get(word) is not None}
    made: Object = {"name": name, "resources": {"limits": limits} if limits else {}}
    requests = {word: str(words[word]) for word in ("cpu", "memory") if word in words}
    if requests:
        made["resources"]["requests"] = requests
    if words.get("sidecar"):
        made["restartPolicy"] = "Always"
    keys = words.get("envs", [words["env"]] if "env" in words else [])
    if direct and limits and not keys:
        keys = [f"{names.VISIBLE_PREFIX}{place}"]
    made["env"] = [_env(key) for key in keys]
    return made


def _env(key: str) -> Object:
    """An annotation of the pod as the container's GPUs; `=value` is a tenant's own value."""
    if key.startswith("="):
        return {"name": names.VISIBLE_DEVICES, "value": key[1:]}
    path = f"metadata.annotations['{key}']"
    return {"name": names.VISIBLE_DEVICES, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def node(name: str, given: Object) -> Object:
    """`gpus` are sizes, or mappings where a GPU is more than its size. Without any, a node for everything else.
    `slots`: MPS slots of each GPU; `mps`: why its MPS daemon does not work; `whole`: it sells nvidia.com/gpu
    too; `sold`: by a node with `pin: nvidia`."""
    known(given, NODE_WORDS, f"node {name}")
    gpus = [_gpu(name, i, gpu) for i, gpu in enumerate(given.get("gpus", []))]
    pin = given.get("pin", "plugin")
    assert pin in list(Pin), f"node {name}: pin {pin}"
    sold = given.get("sold", [{"resource": names.NVIDIA_GPU}]) if pin == "nvidia" else []
    annotations = {}
    if "annotation" in given:
        annotations[names.NODE_GPUS] = given["annotation"]
    elif gpus and pin != "aliyun":
        published = {"v": 1, "unit": given.get("unit", "MiB"), "pin": pin, "state": given.get("state", "ready")}
        published |= {word: given[word] for word in ("largest", "slots", "mps", "only") if word in given}
        published |= {"nvidia": "whole"} if given.get("whole") else {}
        published |= {"sell": "gpus", "sold": sold} if sold else {}
        annotations[names.NODE_GPUS] = json.dumps({**published, "gpus": gpus})
    capacity: Object = {"cpu": str(given.get("cpu", 64))} | ({"memory": given["memory"]} if "memory" in given else {})
    for entry in sold:
        capacity[entry["resource"]] = quantity(entry.get("replicas", 1) * len(gpus))
    if (gpus and not sold) or "capacity" in given:
        capacity[names.GPU_MEM] = quantity(given.get("capacity", sum(gpu["total"] for gpu in gpus if gpu["ok"])))
        capacity[names.GPU_COUNT] = quantity(given.get("count", len(gpus)))
    if given.get("slots"):
        capacity[names.MPS_GPU] = quantity(given["slots"] * len(gpus))
    if given.get("whole"):
        capacity[names.NVIDIA_GPU] = quantity(len(gpus))
    allocatable = dict(capacity)
    if "allocatable" in given:
        allocatable[names.GPU_MEM] = quantity(given["allocatable"])
    if "nvidia" in given:
        allocatable[names.NVIDIA_GPU] = quantity(given["nvidia"])
    return {
        "metadata": {"name": name, "annotations": annotations, "labels": given.get("labels", {})},
        "spec": {"taints": [taint(text) for text in given.get("taints", [])]}
        | ({"unschedulable": True} if given.get("cordoned") else {}),
        "status": {"capacity": capacity, "allocatable": allocatable},
    }


def _gpu(node_name: str, i: int, given: object) -> Object:
    words: Object = given if isinstance(given, dict) else {"total": given}
    known(words, GPU_WORDS, f"GPU {i} of {node_name}")
    index = words.get("i", i)
    uuid = words.get("uuid", f"GPU-{node_name}-{index}")
    more = {"ok": words.get("ok", True), "why": words.get("why", "")}
    return {"i": index, "uuid": uuid, "model": words.get("model", "Tesla T4"), "total": words["total"], **more}
