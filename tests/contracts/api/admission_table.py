"""The pods of admission_pods.yaml and refused_pods.yaml as objects, and what is compared of what comes of them."""

import re
from pathlib import Path
from typing import NamedTuple

from gpushare.core.admission import unasked
from gpushare.core.facts import names
from tests.support import yaml_text
from tests.support.api_client import Object

RESOURCES = {"mem": names.GPU_MEM, "count": names.GPU_COUNT, "mps": names.MPS_GPU, "nvidia": names.NVIDIA_GPU}
TABLE, REFUSED = (
    yaml_text.document((Path(__file__).parent / file).read_text("utf-8"))
    for file in ("admission_pods.yaml", "refused_pods.yaml")
)


class Mode(NamedTuple):
    """What is in force beside the pin of our own resources."""

    nvidia: bool = False
    void: bool = False


MODES = {"pin": Mode(), "pin nvidia.com/gpu, too": Mode(nvidia=True), "void": Mode(nvidia=True, void=True)}


def pod(row: Object, name: str) -> Object:
    spec: Object = {"containers": _containers(row, "asks")}
    if "init" in row:
        spec["initContainers"] = _containers(row, "init")
    if "node" in row:
        spec["nodeName"] = row["node"]
    if "ipc" in row:
        spec["hostIPC"] = row["ipc"]
    if "volumes" in row:
        spec["volumes"] = [_volume(name, folder) for name, folder in row["volumes"].items()]
    spec["schedulerName"] = row.get("scheduler", "nobody")
    metadata = {"name": name, "annotations": row.get("annotations", {}), "labels": row.get("pod_labels", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def name(row: Object) -> str:
    return re.sub("[^a-z0-9]+", "-", row["name"].lower()).strip("-")


def contents(pod: Object) -> Object:
    """By container, its env and its mounts to the letter, and the volumes of the pod."""
    spec = pod["spec"]
    found = {
        one["name"]: (one.get("env") or [], without_token(one.get("volumeMounts")))
        for one in (*spec["containers"], *(spec.get("initContainers") or ()))
    }
    return found | {"": [_shortened(one) for one in without_token(spec.get("volumes"))]}


def without_token(listed: list[Object] | None) -> list[Object]:
    """Mounts or volumes without that of the service account, which real API servers add under a name made by chance."""
    return [one for one in listed or () if not one["name"].startswith("kube-api-access-")]


def _shortened(volume: Object) -> Object:
    """Real API servers add an empty type."""
    path = {key: value for key, value in volume.get("hostPath", {}).items() if value}
    return volume | {"hostPath": path} if path else volume


def without_order(spec: Object) -> Object:
    """A container that asks for 0 is pinned by one policy and hidden from GPUs by the other, and which of two policies
    comes first is not defined. What counts is its last entry."""
    for one in (*spec["containers"], *(spec.get("initContainers") or ())):
        limits = (one.get("resources") or {}).get("limits") or {}
        if limits and all(amount == "0" for amount in limits.values()):
            one["env"] = (one.get("env") or [])[-1:]
        elif env := one.get("env"):
            one["env"] = [entry for at, entry in enumerate(env) if not _is_overruled(entry, env[at + 1 :])]
    return spec


def _is_overruled(entry: Object, later: list[Object]) -> bool:
    """Whether a container was hidden from GPUs by one policy and then pinned by the other: the pin comes last, and
    counts. So it may be with a pod that names its node, where only a pin says that nvidia.com/gpu is counted."""
    pins = [one for one in later if one["name"] == entry["name"] and "valueFrom" in one]
    return entry == unasked.VOID and bool(pins)


def _containers(row: Object, which: str) -> list[Object]:
    return [_container(row, called, limits) for called, limits in row[which].items()]


def _container(row: Object, called: str, limits: Object) -> Object:
    made: Object = {"name": called, "image": "busybox"}
    if limits:
        made["resources"] = {"limits": {RESOURCES.get(what, what): amount for what, amount in limits.items()}}
    if called in row.get("env", {}):
        made["env"] = [_entry(text) for text in row["env"][called]]
    if called in row.get("mounts", {}):
        pairs = (text.split(":") for text in row["mounts"][called])
        made["volumeMounts"] = [{"name": volume, "mountPath": path} for volume, path in pairs]
    if called in row.get("sidecars", ()):
        made["restartPolicy"] = "Always"
    return made


def _volume(name: str, folder: str) -> Object:
    """A folder of the node, or an empty one."""
    return {"name": name, "hostPath": {"path": folder}} if folder else {"name": name, "emptyDir": {}}


def _entry(text: str) -> Object:
    if "<" in text:
        variable, annotation = text.split("<")
        path = f"metadata.annotations['{annotation}']"
        return {"name": variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    variable, value = text.split("=", 1)
    return {"name": variable, "value": value}
