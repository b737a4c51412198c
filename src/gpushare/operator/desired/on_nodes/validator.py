"""The validator: checks each GPU node, and leaves the files that other components wait for.

node-status-exporter is no component of its own: the validator also answers Prometheus then, under NVIDIA's names.
"""

from collections.abc import Sequence

from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests, Object
from gpushare.operator.desired.policy import HostPaths, Spec, Toolkit

NAME, EXPORTER = "validator", "node-status-exporter"
FILE, GUARD = "operator/validator.yaml", "operator/validator-guard.yaml"
GUARDED = "validatingadmissionpolicies.admissionregistration.k8s.io/v1"
PORT = 8000  # NVIDIA's
BY_EXTENDER = "default-scheduler"  # which places all pods, if there is no second one
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
    common.add_args(main, _places(spec))
    common.add_args(main, _pods(spec))
    if spec.node_status_exporter.enabled:
        _answer_prometheus(main, spec.node_status_exporter.args)
    common.on_nodes(workload, spec, spec.validator, cluster)
    common.rolling(workload, spec.daemonsets)
    common.select(workload, operator_validator="true")
    if GUARDED in cluster.kinds:
        objects += common.documents(manifests, GUARD, cluster)
    return Component(NAME, tuple(objects))


def node_status_exporter(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    enabled = spec.node_status_exporter.enabled
    return Component(EXPORTER, enabled=enabled, unserved="" if spec.validator.enabled or not enabled else NO_VALIDATOR)


def _places(spec: Spec) -> list[str]:
    """Where it looks, if that is not the usual place."""
    places = {
        "--real-root": (spec.host_paths.root_fs, HostPaths().root_fs),
        "--driver-root": (spec.host_paths.driver_install_dir, HostPaths().driver_install_dir),
        "--toolkit-dir": (spec.toolkit.install_dir, Toolkit().install_dir),
    }
    return [f"{flag}={path}" for flag, (path, usual) in places.items() if path != usual]


def _pods(spec: Spec) -> list[str]:
    """The pod that it tries is one as users have them: of NVIDIA's runtime, and placed by whoever places theirs."""
    words = [f"--runtime-class={spec.operator.runtime_class}"] if spec.operator.runtime_class else []
    second = spec.scheduler.enabled and spec.scheduler.mode == "second"
    return words if second else [*words, f"--scheduler-name={BY_EXTENDER}"]


def _answer_prometheus(main: Object, more: Sequence[str]) -> None:
    common.add_args(main, [f"--metrics-listen=[$(POD_IP)]:{PORT}", *more])
    common.add_env(main, [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])
    main["ports"] = [*main["ports"], {"name": "node-status", "containerPort": PORT, "hostPort": PORT}]
