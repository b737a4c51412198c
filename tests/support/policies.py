"""What a ClusterPolicy asks for, in a cluster of a test."""

from typing import Any

import msgspec

from gpushare.operator import manifests
from gpushare.operator.desired import whole
from gpushare.operator.desired.component import Cluster, Component
from gpushare.operator.desired.policy import Spec

Object = dict[str, Any]

NAMESPACE = "gpu-operator"
IMAGE = "registry.example/team/gpushare:0.1.0"
KINDS = frozenset(
    {
        "mutatingadmissionpolicies.admissionregistration.k8s.io/v1",
        "podmonitors.monitoring.coreos.com/v1",
        "prometheusrules.monitoring.coreos.com/v1",
    }
)
CLUSTER = Cluster(NAMESPACE, (1, 36), "v1.36.4", IMAGE, kinds=KINDS)
DRIVER = {"enabled": True, "version": "595.91.07-ubuntu24.04"}

# All that can be served, at once.
EVERYTHING: Object = {
    "driver": DRIVER,
    "toolkit": {"enabled": True},
    "mps": {"enabled": True},
    "nodeStatusExporter": {"enabled": True},
    "monitoring": {"enabled": True},
    "dashboard": {"enabled": True},
    "sharing": {"mpsSlots": 10, "reserveMiB": 512},
}
SEED: Object = {  # the values of the guide that people follow
    "driver": {"enabled": False},
    "migManager": {"enabled": False},
    "vgpuManager": {"enabled": False},
    "vgpuDeviceManager": {"enabled": False},
    "vfioManager": {"enabled": False},
    "daemonsets": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]},
    "sharing": {"sell": "gpus"},
}
NOTHING: Object = {
    **{part: {"enabled": False} for part in ("devicePlugin", "validator", "finder", "scheduler", "admission")},
    "operator": {"runtimeClass": ""},
}
POLICIES: dict[str, Object] = {
    "default": {},
    "everything": EVERYTHING,
    "seed": SEED,
    "nothing": NOTHING,
    "mps replicas": {
        "sharing": {"sell": "gpus"},
        "devicePlugin": {"config": {"name": "plugin-configs", "default": "mps"}},
        "mps": {"enabled": True},
    },
    "by hand": {
        "validator": {"enabled": False},
        "finder": {"enabled": False},
        "dcgmExporter": {"enabled": False},
        "gfd": {"enabled": False},
        "scheduler": {"mode": "extender"},
        "operator": {"runtimeClass": ""},
    },
}


def spec(said: Object) -> Spec:
    return msgspec.convert(said, Spec)


def desired(said: Object, cluster: Cluster = CLUSTER) -> dict[str, Component]:
    """By name, in the order of the status."""
    return {one.name: one for one in whole.desired(spec(said), cluster, manifests.load)}


def objects(said: Object, cluster: Cluster = CLUSTER) -> list[Object]:
    return [one for component in desired(said, cluster).values() for one in component.objects]


def one(said: Object, kind: str, name: str, cluster: Cluster = CLUSTER) -> Object:
    (found,) = (this for this in objects(said, cluster) if (this["kind"], this["metadata"]["name"]) == (kind, name))
    return found


def pod(said: Object, name: str, cluster: Cluster = CLUSTER) -> Object:
    """That of a DaemonSet."""
    found: Object = one(said, "DaemonSet", name, cluster)["spec"]["template"]["spec"]
    return found


def container(said: Object, name: str, cluster: Cluster = CLUSTER) -> Object:
    found: Object = pod(said, name, cluster)["containers"][0]
    return found
