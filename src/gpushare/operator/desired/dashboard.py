"""The cluster in a browser, for people who may read nodes: a Deployment behind a Service, over HTTPS."""

from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec

NAME = "dashboard"


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    part = spec.dashboard
    if not part.enabled:
        return Component(NAME, enabled=False)
    if failing := common.failing(NAME, part, NAME):
        return failing
    objects = common.documents(manifests, "dashboard.yaml", cluster)
    (workload,) = common.of_kind(objects, "Deployment")
    common.every_workload(workload, part, cluster)
    common.also_on_tainted(workload, spec)
    return Component(NAME, tuple(objects))
