"""The node part: one DaemonSet for nodes that sell shares, one for those that sell whole GPUs or replicas.

Both are always there. The label `gpushare` of a node chooses, so that single nodes can differ from the policy.
Discovery and the exporter are flags of both, and have names of their own in the status.
"""

from gpushare.core.facts import names
from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests, Object
from gpushare.operator.desired.on_nodes import mps
from gpushare.operator.desired.policy import ConfigName, Spec

NAME, DISCOVERY, EXPORTER = "node-part", "discovery", "exporter"
SHARES, GPUS, RIGHTS = "node-ds.yaml", "nvidia-ds.yaml", "operator/discovery.yaml"
METRICS = "metrics"  # the port


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> list[Component]:
    enabled = spec.device_plugin.enabled
    flags = [
        _discovery(spec, cluster, manifests),
        Component(EXPORTER, enabled=enabled and spec.dcgm_exporter.enabled),
    ]
    if not enabled:
        return [Component(NAME, enabled=False), *flags]
    if failing := common.failing(NAME, spec.device_plugin, "devicePlugin"):
        return [failing, *flags]
    objects = [*_shares(spec, cluster, manifests), *_gpus(spec, cluster, manifests)]
    return [Component(NAME, tuple(objects)), *flags]


def _discovery(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    """Only rights, which it needs where node-feature-discovery runs."""
    if not (spec.device_plugin.enabled and spec.gfd.enabled):
        return Component(DISCOVERY, enabled=False)
    return Component(DISCOVERY, tuple(common.documents(manifests, RIGHTS, cluster)))


def _shares(spec: Spec, cluster: Cluster, manifests: Manifests) -> list[Object]:
    objects = common.documents(manifests, SHARES, cluster)
    (workload,) = common.of_kind(objects, "DaemonSet")
    sharing = spec.sharing
    words = ["node", f"--memory-unit={sharing.memory_unit}"]
    if sharing.reserve_mib:
        words.append(f"--reserve={sharing.reserve_mib}")
    if sharing.mps_slots:
        words.append(f"--mps-slots={sharing.mps_slots}")
    if spec.admission.enabled and spec.admission.nvidia_gpu == "whole":
        words.append("--nvidia-gpu=whole")  # admission pins such pods: somebody has to sell it
    common.container(workload)["args"] = words
    _of_both(workload, spec, cluster, sells="memory")
    return objects


def _gpus(spec: Spec, cluster: Cluster, manifests: Manifests) -> list[Object]:
    objects = common.documents(manifests, GPUS, cluster)
    (workload,) = common.of_kind(objects, "DaemonSet")
    _configs(workload, spec.device_plugin.config)
    _of_both(workload, spec, cluster, sells="gpus")
    return objects


def _configs(workload: Object, config: ConfigName) -> None:
    if config.name:  # one that is named has to be there
        volume = next(one for one in common.pod(workload)["volumes"] if one["name"] == "configs")
        volume["configMap"] = {"name": config.name}
    if config.default:
        common.add_args(common.container(workload), [f"--default-config={config.default}"])


def _of_both(workload: Object, spec: Spec, cluster: Cluster, *, sells: str) -> None:
    main = common.container(workload)
    if mps.serves(spec) and spec.sharing.sell == sells:
        _read_reports(workload)
    if spec.gfd.enabled:
        common.add_args(main, ["--discovery=auto", *spec.gfd.args])
    _export(main, spec)
    # Flags of devicePlugin are for what the policy sells: the other DaemonSet may not know them.
    own = list(main["args"])
    common.on_nodes(workload, spec, spec.device_plugin, cluster)
    if spec.sharing.sell != sells:
        main["args"] = own
    common.rolling(workload, spec.daemonsets)
    common.select(workload, device_plugin="true")
    common.runtime_class(workload, spec)
    common.wait_for(workload, spec, cluster, "driver", "toolkit")


def _read_reports(workload: Object) -> None:
    """Of the MPS daemon: the lines that are commented out in the manifest."""
    main, inside = common.container(workload), common.pod(workload)
    common.add_args(main, [f"--mps-status={names.MPS_STATUS_FOLDER}"])
    main["volumeMounts"].append({"name": "mps", "mountPath": names.MPS_STATUS_FOLDER, "readOnly": True})
    common.add_host_path(inside, "mps", names.MPS_STATUS_FOLDER)


def _export(main: Object, spec: Spec) -> None:
    """Off: the port is free for an exporter of others."""
    if spec.dcgm_exporter.enabled:
        common.add_args(main, spec.dcgm_exporter.args)
        return
    common.add_args(main, ["--metrics-listen=off"])
    main["ports"] = [port for port in main["ports"] if port["name"] != METRICS]
