"""Prometheus learns of gpushare: monitors, alerts and the right to read metrics, for the Prometheus Operator."""

from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec

NAME = "monitoring"
MONITORS, RULES = "podmonitors.monitoring.coreos.com/v1", "prometheusrules.monitoring.coreos.com/v1"
READERS = "gpushare-metrics"  # the ClusterRole in view-rbac.yaml
NO_OPERATOR = (
    "this cluster has no PodMonitors: install the Prometheus Operator, or give your own Prometheus the jobs of "
    "deploy/monitoring/scrape-config.yaml and set monitoring.enabled to false"
)


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    if not spec.monitoring.enabled:
        return Component(NAME, enabled=False)
    if MONITORS not in cluster.kinds:
        return Component(NAME, unserved=NO_OPERATOR)
    roles = common.documents(manifests, "view-rbac.yaml", cluster)
    found = [role for role in roles if role["metadata"]["name"] == READERS]
    found += common.documents(manifests, "monitoring/podmonitor.yaml", cluster)
    for monitor in common.of_kind(found, "PodMonitor"):
        monitor["spec"]["namespaceSelector"]["matchNames"] = [cluster.namespace]
    if RULES in cluster.kinds:
        found += common.documents(manifests, "monitoring/prometheusrule.yaml", cluster)
    return Component(NAME, tuple(found))
