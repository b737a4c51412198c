"""Components that have a switch, and cannot be served: the status says so, and what to do instead."""

from typing import Final

from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec

VIRTUAL: Final = (
    "{what}, and gpushare gives GPUs to containers, not to virtual machines: set {field}.enabled to false, and use "
    "NVIDIA's operator for nodes that run virtual machines"
)
NO_MIG: Final = (
    "gpushare shares GPUs by memory and does not divide them with MIG: set migManager.enabled to false, and keep MIG "
    "off on the nodes (nvidia-smi -mig 0)"
)
WHY: Final = {  # by name in the status: its field, and the sentence
    "mig-manager": ("mig_manager", NO_MIG),
    "vgpu-manager": (
        "vgpu_manager", VIRTUAL.format(what="it installs the vGPU driver of a hypervisor", field="vgpuManager"),
    ),
    "vgpu-device-manager": (
        "vgpu_device_manager",
        VIRTUAL.format(what="it makes vGPU devices for virtual machines", field="vgpuDeviceManager"),
    ),
    "vfio-manager": (
        "vfio_manager", VIRTUAL.format(what="it hands whole GPUs to virtual machines", field="vfioManager"),
    ),
}  # fmt: skip


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> list[Component]:
    return [_component(name, getattr(spec, field).enabled, why) for name, (field, why) in WHY.items()]


def _component(name: str, enabled: bool, why: str) -> Component:
    return Component(name, enabled=enabled, unserved=why if enabled else "")
