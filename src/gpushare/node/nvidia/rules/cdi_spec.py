"""The CDI spec of this node's GPUs: what a container runtime has to do to show a GPU to a container.

Pure. Best is what nvidia-ctk makes (`checked`, `moved`): it knows the driver's libraries. Without it the spec has the
device nodes alone (`of_nodes`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from gpushare.core.facts import names
from gpushare.node.nvidia.rules.devices import Gpu
from gpushare.node.nvidia.rules.settings import Settings

VENDOR: Final = "k8s.device-plugin.nvidia.com"
CLASS: Final = "gpu"
KIND: Final = f"{VENDOR}/{CLASS}"
FILE: Final = f"{VENDOR}-{CLASS}.json"
VERSION: Final = "0.5.0"
CONTROL_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
NOT_OURS: Final = "its kind is {kind}"
INCOMPLETE: Final = "it has no device {name}"

Object = dict[str, Any]


def name(gpu: Gpu, *, by_index: bool) -> str:
    return str(gpu.index) if by_index else gpu.uuid


def on_host(settings: Settings, path: str) -> str:
    """A device node's path on the host."""
    return settings.dev_root.rstrip("/") + path


def of_nodes(settings: Settings, gpus: Iterable[Gpu], nodes: Iterable[str]) -> Object:
    """`nodes`: the driver's control nodes that exist. A GPU whose node is not known is left out."""
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "containerEdits": {
            # NVIDIA's runtime, where it is the default, would look at the image's variable and show GPUs again.
            "env": [f"{names.VISIBLE_DEVICES}=void"],
            "deviceNodes": [_node(settings, path) for path in nodes],
        },
        "devices": [
            {
                "name": name(gpu, by_index=settings.by_index),
                "containerEdits": {"deviceNodes": [_node(settings, f"/dev/nvidia{gpu.minor}")]},
            }
            for gpu in gpus
            if gpu.minor is not None
        ],
    }


def checked(spec: Object, wanted: Collection[str]) -> str:
    """Why a spec that somebody else made cannot be used; empty if it can."""
    if spec.get("kind") != KIND:
        return NOT_OURS.format(kind=spec.get("kind"))
    there = {device.get("name") for device in spec.get("devices") or ()}
    return next((INCOMPLETE.format(name=one) for one in sorted(wanted) if one not in there), "")


def moved(spec: Object, settings: Settings, here: str) -> Object:
    """With the paths of the host, of a spec that was made in this container, where the driver's root is `here`."""
    edits = [spec.get("containerEdits") or {}, *(d.get("containerEdits") or {} for d in spec.get("devices") or ())]
    for edit in edits:
        for mount in edit.get("mounts") or ():
            if mount["hostPath"].startswith(f"{here.rstrip('/')}/"):
                mount["hostPath"] = settings.driver_root.rstrip("/") + mount["hostPath"].removeprefix(here.rstrip("/"))
        for node in edit.get("deviceNodes") or ():
            node.update(_node(settings, node["path"]))
    return spec


def _node(settings: Settings, path: str) -> Mapping[str, str]:
    host = on_host(settings, path)
    return {"path": path} if host == path else {"path": path, "hostPath": host}
