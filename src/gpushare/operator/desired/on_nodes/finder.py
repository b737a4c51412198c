"""The finder, on every node: it labels those that have GPUs. Off where node-feature-discovery does that."""

from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec

NAME = "finder"
FILE = "operator/finder.yaml"


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    if not spec.finder.enabled:
        return Component(NAME, enabled=False)
    if failing := common.failing(NAME, spec.finder, "finder"):
        return failing
    objects = common.documents(manifests, FILE, cluster)
    (workload,) = common.of_kind(objects, "DaemonSet")
    tolerations = common.pod(workload)["tolerations"]
    common.on_nodes(workload, spec, spec.finder, cluster)
    common.pod(workload)["tolerations"] = tolerations  # a node's taints are not known before its GPUs are
    return Component(NAME, tuple(objects))
