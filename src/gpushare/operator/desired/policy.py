"""A ClusterPolicy as data. The API server has checked it by its schema (deploy/crds/clusterpolicies.yaml), which has
the same fields, defaults and descriptions; a test compares both.

Fields with the names of NVIDIA's ClusterPolicy mean the same as there.
"""

from typing import Any, Literal

import msgspec

Object = dict[str, Any]


class Struct(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Unknown fields never arrive: the API server refuses them, or drops them for programs that do not ask for that."""


class Image(Struct, frozen=True):
    """An empty field: that of gpushare's own image, or NVIDIA's default for its own parts."""

    repository: str = ""  # such as nvcr.io/nvidia
    image: str = ""  # such as driver
    version: str = ""  # a tag, or sha256:...
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()


class Part(Image, frozen=True):
    """What every component has."""

    enabled: bool = True
    resources: Object = {}
    env: tuple[Object, ...] = ()
    args: tuple[str, ...] = ()


class Off(Part, frozen=True):
    """A component that is off unless somebody switches it on."""

    enabled: bool = False


class Switch(Struct, frozen=True):
    """A component without pods of its own."""

    enabled: bool = False


class Flags(Struct, frozen=True):
    """A component that is a flag of another one, whose image and resources it has."""

    enabled: bool = True
    args: tuple[str, ...] = ()


class FlagsOff(Flags, frozen=True):
    enabled: bool = False


class ConfigName(Struct, frozen=True):
    name: str = ""  # of a ConfigMap in the operator's namespace, each key of which is a config of NVIDIA's plugin
    default: str = ""  # the key for nodes without the label nvidia.com/device-plugin.config


class DevicePlugin(Part, frozen=True):
    """The node part: gpushare node, whatever it sells."""

    config: ConfigName = ConfigName()


class Toolkit(Off, frozen=True):
    install_dir: str = "/usr/local/nvidia"


class Operator(Struct, frozen=True):
    runtime_class: str = "nvidia"  # empty: none; NVIDIA's runtime is the default on the nodes


class RollingUpdate(Struct, frozen=True):
    max_unavailable: str = "1"


class DaemonSets(Struct, frozen=True):
    """What all parts on nodes have in common."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    tolerations: tuple[Object, ...] = ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},)
    priority_class_name: str = "system-node-critical"
    update_strategy: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()
    taint: bool = False  # GPU nodes get nvidia.com/gpu=present:NoSchedule


class HostPaths(Struct, frozen=True):
    root_fs: str = msgspec.field(default="/", name="rootFS")
    driver_install_dir: str = "/run/nvidia/driver"
    kubelet_root_dir: str = "/var/lib/kubelet"


class Scheduler(Part, frozen=True):
    """Who places pods that ask for shares.

    second: a kube-scheduler of our own named gpu-scheduler, with the extender in its pod.
    extender: only the extender, beside the cluster's kube-scheduler, which gpushare install-scheduler tells to ask it.
    """

    mode: Literal["second", "extender"] = "second"
    assign_pods: bool = True  # second: pods that ask for shares get schedulerName gpu-scheduler at admission
    policy: str = ""  # as --policy of the extender; empty: its default
    kube_scheduler: Image = Image()  # second: default registry.k8s.io/kube-scheduler of the cluster's version


class Admission(Part, frozen=True):
    """auto: policies from Kubernetes 1.36 on, else the webhook."""

    mode: Literal["auto", "policies", "webhook"] = "auto"
    nvidia_gpu: Literal["leave", "whole"] = "leave"
    unasked: Literal["leave", "void"] = "leave"


class Sharing(Struct, frozen=True):
    """What GPU nodes sell, unless their label gpushare says otherwise (true: memory, gpus: gpus)."""

    sell: Literal["memory", "gpus"] = "memory"
    memory_unit: Literal["MiB", "GiB"] = "MiB"
    reserve_mib: int = msgspec.field(default=0, name="reserveMiB")
    mps_slots: int = 0


class Spec(Struct, frozen=True):
    operator: Operator = Operator()
    daemonsets: DaemonSets = DaemonSets()
    host_paths: HostPaths = HostPaths()
    driver: Off = Off()  # off: it is on the nodes already, and checked
    toolkit: Toolkit = Toolkit()  # the same
    device_plugin: DevicePlugin = DevicePlugin()
    mps: Off = Off()
    dcgm_exporter: Flags = Flags()  # of the node part, which answers Prometheus under DCGM's names, too
    gfd: Flags = Flags()  # of the node part
    node_status_exporter: FlagsOff = FlagsOff()  # of the validator
    validator: Part = Part()
    finder: Part = Part()  # finds GPU nodes; off where node-feature-discovery does it
    mig_manager: Off = Off()
    vgpu_manager: Off = Off()
    vgpu_device_manager: Off = Off()
    vfio_manager: Off = Off()
    scheduler: Scheduler = Scheduler()
    admission: Admission = Admission()
    sharing: Sharing = Sharing()
    monitoring: Switch = Switch()
    dashboard: Off = Off()
