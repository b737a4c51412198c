"""What happens to pods and annotations when they are written: by policies of the API server where it has them, else by
the webhook. Both do the same."""

import re
from typing import Final

from gpushare.core.admission import guard, unasked
from gpushare.operator.desired import common, scheduler
from gpushare.operator.desired.component import Cluster, Component, Manifests, Object
from gpushare.operator.desired.policy import Spec

NAME = "admission"
POLICIES: Final = "mutatingadmissionpolicies.admissionregistration.k8s.io/v1"
TOKENS_NAME_NODES: Final = (1, 32)  # before, nobody can say on which node a program of ours runs
TOO_OLD = (
    "this API server has no MutatingAdmissionPolicies, which come with Kubernetes 1.36: set admission.mode to auto or "
    "webhook"
)
OWN_NODE: Final = "node-guard.yaml"
OWN_NAME: Final = "kubernetes.io/metadata.name"  # every namespace has this label


def build(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    part = spec.admission
    if not part.enabled:
        return Component(NAME, enabled=False)
    if part.mode == "policies" and POLICIES not in cluster.kinds:
        return Component(NAME, unserved=TOO_OLD)
    if part.mode == "webhook" or POLICIES not in cluster.kinds:
        return _webhook(spec, cluster, manifests)
    files = ["admission.yaml", "guard.yaml", OWN_NODE, "validate.yaml"]
    files += ["admission-nvidia.yaml"] * (part.nvidia_gpu == "whole")
    files += ["unasked.yaml"] * (part.unasked == "void")
    files += ["scheduler-name.yaml"] * bool(scheduler.assigns(spec))
    return Component(NAME, tuple(one for file in files for one in _policies(file, cluster, manifests)))


def _policies(file: str, cluster: Cluster, manifests: Manifests) -> list[Object]:
    objects = common.documents(manifests, file, cluster)
    for one in objects:
        for condition in one["spec"].get("matchConditions", ()):
            condition["expression"] = _without_keti(condition["expression"], cluster)
        _leave_out(one, cluster.namespace)
    return objects


def _without_keti(expression: str, cluster: Cluster) -> str:
    """Beside the operator there is nothing of KETI's, and its namespace may be anybody's."""
    for account in guard.KETI if cluster.namespace != guard.NAMESPACE else ():
        expression = re.sub(rf",\s*'{re.escape(account)}'", "", expression)
    return expression


def _leave_out(binding: Object, namespace: str) -> None:
    """Where gpushare is, pods see all GPUs on purpose, as in the other namespaces that a binding leaves out by name."""
    selector = binding["spec"].get("matchResources", {}).get("namespaceSelector", {})
    for expression in selector.get("matchExpressions", ()):
        if expression["key"] == OWN_NAME:
            expression["values"] = unasked.system(namespace)


def _webhook(spec: Spec, cluster: Cluster, manifests: Manifests) -> Component:
    """It does all that the policies do but one, which needs no webhook."""
    part = spec.admission
    if failing := common.failing(NAME, part, NAME):
        return failing
    objects = common.documents(manifests, "webhook.yaml", cluster)
    (workload,) = common.of_kind(objects, "Deployment")
    words = ["--nvidia-gpu", "whole"] * (part.nvidia_gpu == "whole")
    words += ["--unasked", "void"] * (part.unasked == "void")
    if assigned := scheduler.assigns(spec):
        words += ["--scheduler-name", assigned]
    common.add_args(common.container(workload), words)
    common.every_workload(workload, part, cluster)
    common.also_on_tainted(workload, spec)
    own_node = _policies(OWN_NODE, cluster, manifests) if cluster.version >= TOKENS_NAME_NODES else []
    return Component(NAME, (*objects, *own_node))
