"""NVIDIA's MPS daemon, on the nodes that sell what the policy says: it has all GPUs of its node for itself.

A node of the other kind would lose its GPUs to it, so the label `gpushare` chooses here, too.
"""

from gpushare.core.facts import names
from gpushare.operator.desired import common
from gpushare.operator.desired.component import Cluster, Component, Manifests
from gpushare.operator.desired.policy import Spec

NAME = "mps"
FILE = "mps-ds.yaml"
NOTHING_TO_SERVE = (
    "no node would sell what the MPS daemon serves, and it keeps GPUs from all others: set sharing.mpsSlots, or for "
    "sharing.sell gpus devicePlugin.config.name with a config that has sharing.mps"
)


def serves(spec: Spec) -> bool:
    """Whether there is something to serve."""
    wanted = spec.sharing.mps_slots if spec.sharing.sell == "memory" else spec.device_plugin.config.name
    return spec.mps.enabled and bool(wanted)


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    if not spec.mps.enabled:
        return Component(NAME, enabled=False)
    if failing := common.failing(NAME, spec.mps, "mps"):
        return failing
    if not serves(spec):
        return Component(NAME, unserved=NOTHING_TO_SERVE)
    objects = common.documents(manifests, FILE, cluster)
    (workload,) = common.of_kind(objects, "DaemonSet")
    common.on_nodes(workload, spec, spec.mps, cluster)
    sold = names.SHARED_MEMORY if spec.sharing.sell == "memory" else names.SHARED_GPUS
    common.pod(workload)["nodeSelector"] = {names.SHARED: sold}
    common.select(workload, device_plugin="true")
    common.runtime_class(workload, spec)
    common.wait_for(workload, spec, cluster, "driver", "toolkit")
    return Component(NAME, tuple(objects))
