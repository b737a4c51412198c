"""NVIDIA's container toolkit, which makes containerd start containers with GPUs. Off unless somebody asks for it."""

from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests, Object
from gpushare.operator.desired.policy import Spec

NAME = "toolkit"
FILE = "operator/toolkit.yaml"
FOLDER = "toolkit-install-dir"  # the volume
NO_VALIDATOR = (
    "the toolkit learns from the validator where the driver is on a node, and validator.enabled is false: set it to "
    "true, or install the toolkit by hand and set toolkit.enabled to false"
)


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    if not spec.toolkit.enabled:
        return Component(NAME, enabled=False)
    if failing := common.failing(NAME, spec.toolkit, "toolkit"):
        return failing
    if not spec.validator.enabled:
        return Component(NAME, unserved=NO_VALIDATOR)
    objects = common.documents(manifests, FILE, cluster)
    (workload,) = common.of_kind(objects, "DaemonSet")
    _install_into(workload, spec.toolkit.install_dir)
    common.on_nodes(workload, spec, spec.toolkit, cluster, default=common.container(workload)["image"])
    if spec.operator.runtime_class:
        runtime_class = {"name": "CONTAINERD_RUNTIME_CLASS", "value": spec.operator.runtime_class}
        common.add_env(common.container(workload), [runtime_class])
    common.rolling(workload, spec.daemonsets)
    common.select(workload, container_toolkit="true")
    common.wait_for(workload, spec, cluster, "driver")
    return Component(NAME, tuple(objects))


def _install_into(workload: Object, folder: str) -> None:
    """The same path on the node and in the container: it is written into the configuration of containerd."""
    main, inside = common.container(workload), common.pod(workload)
    common.add_env(main, [{"name": name, "value": folder} for name in ("ROOT", "TOOLKIT_INSTALL_DIR")])
    next(one for one in main["volumeMounts"] if one["name"] == FOLDER)["mountPath"] = folder
    next(one for one in inside["volumes"] if one["name"] == FOLDER)["hostPath"]["path"] = folder
