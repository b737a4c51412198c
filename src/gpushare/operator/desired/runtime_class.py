"""The RuntimeClass of NVIDIA's container runtime, which brings the driver into containers."""

from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec

NAME = "runtime-class"
FILE = "operator/runtimeclass.yaml"


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    wanted = spec.operator.runtime_class
    if not wanted:
        return Component(NAME, enabled=False)
    (found,) = common.documents(manifests, FILE, cluster)
    found["metadata"]["name"] = found["handler"] = wanted
    return Component(NAME, (found,))
