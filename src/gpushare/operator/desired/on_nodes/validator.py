"""The validator: checks each GPU node, and leaves the files that other components wait for.

node-status-exporter is no component of its own: the validator also answers Prometheus then, under NVIDIA's names.
"""

from gpushare.core.facts import names
from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests, Object
from gpushare.operator.desired.policy import Spec

NAME, EXPORTER = "validator", "node-status-exporter"
FILE = "operator/validator.yaml"
PORT = 8000  # NVIDIA's
BY_EXTENDER = "default-scheduler"  # who places the pod of a check then
NO_VALIDATOR = (
    "it is a part of the validator, and validator.enabled is false: set that to true, or "
    "nodeStatusExporter.enabled to false"
)


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    if not spec.validator.enabled:
        return Component(NAME, enabled=False)
    if failing := common.failing(NAME, spec.validator, "validator"):
        return failing
    objects = common.documents(manifests, FILE, cluster)
    (workload,) = common.of_kind(objects, "DaemonSet")
    main = common.container(workload)
    common.add_args(main, _flags(spec))
    common.on_nodes(workload, spec, spec.validator, cluster)
    common.add_env(main, [{"name": "OPERAND_IMAGE", "value": main["image"]}])
    if spec.node_status_exporter.enabled:
        _answer_prometheus(main)
    common.rolling(workload, spec.daemonsets)
    common.select(workload, operator_validator="true")
    return Component(NAME, tuple(objects))


def node_status_exporter(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    enabled = spec.node_status_exporter.enabled
    return Component(EXPORTER, enabled=enabled, unserved="" if spec.validator.enabled or not enabled else NO_VALIDATOR)


def _flags(spec: Spec) -> list[str]:
    """Shares are placed by our second scheduler, or by the cluster's own that asks the extender."""
    second = spec.scheduler.enabled and spec.scheduler.mode == "second"
    words = [f"--scheduler-name={names.GPU_SCHEDULER if second else BY_EXTENDER}"]
    if spec.node_status_exporter.enabled:
        words += [f"--metrics-listen=[$(POD_IP)]:{PORT}", *spec.node_status_exporter.args]
    return words


def _answer_prometheus(main: Object) -> None:
    common.add_env(main, [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])
    main["ports"] = [*main.get("ports", []), {"name": "node-status", "containerPort": PORT}]
