"""What kube-scheduler itself checks before it asks an extender: written again, from Kubernetes' documents alone.

The extender has its own idea of these rules, and a tester that used it would share its mistakes. Read by the model
scheduler and by the judge.
"""

import functools
from typing import Any

from gpushare.core.facts import names

Object = dict[str, Any]
SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
HIDDEN = "test/keeps-off"  # nodes that a rule of the scheduler's own forbids, one that no extender can evaluate


@functools.cache
def number(quantity: str | int) -> int:
    """A quantity as the API server writes it."""
    text = str(quantity)
    for suffix, factor in sorted(SUFFIXES.items(), key=lambda pair: -len(pair[0])):
        if text.endswith(suffix):
            return int(float(text.removesuffix(suffix)) * factor)
    return int(float(text))


def asks(container: Object, resource: str) -> int:
    limits = container.get("resources", {}).get("limits", {})
    try:
        return number(limits.get(resource, 0))
    except ValueError:
        return 0


def requests(pod: Object, resource: str) -> int:
    """The most a pod needs at any time, as the scheduler sums it."""
    stays = sum(asks(container, resource) for container in pod["spec"]["containers"])
    most = beside = 0
    for container in pod["spec"].get("initContainers", []):
        need = asks(container, resource)
        if container.get("restartPolicy") == "Always":
            beside += need
        most = max(most, beside + (0 if container.get("restartPolicy") == "Always" else need))
    return max(most, beside + stays)


def kept_off(pod: Object, node: Object, *, hidden: bool = True) -> str:
    """Why a pod may not use a node at all, in the scheduler's words; empty if it may."""
    spec, labels = pod["spec"], node["metadata"].get("labels", {})
    if node.get("spec", {}).get("unschedulable") and not _tolerates(spec, UNSCHEDULABLE):
        return "node(s) were unschedulable"
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return "node(s) didn't match Pod's node affinity/selector"
    if not _affine(spec, labels):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node.get("spec", {}).get("taints", []):
        if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerates(spec, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if hidden and node["metadata"]["name"] in pod["metadata"].get("labels", {}).get(HIDDEN, "").split("_"):
        return "node(s) didn't match pod anti-affinity rules"
    return ""


UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _tolerates(spec: Object, taint: Object) -> bool:
    for toleration in spec.get("tolerations", []):
        same_effect = toleration.get("effect") in (None, taint["effect"])
        same_key = toleration.get("key") in (None, taint["key"])
        exists = toleration.get("operator") == "Exists"
        if same_effect and same_key and (exists or toleration.get("value", "") == taint.get("value", "")):
            return True
    return False


def _affine(spec: Object, labels: dict[str, str]) -> bool:
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    terms = required["nodeSelectorTerms"]
    return any(all(_matches(one, labels) for one in term.get("matchExpressions", [])) for term in terms)


def _matches(expression: Object, labels: dict[str, str]) -> bool:
    value, operator = labels.get(expression["key"]), expression["operator"]
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return (value in expression["values"]) is (operator == "In")


def short_of(pod: Object, node: Object, others: list[Object]) -> str:
    """Which resource a node's total lacks beside the pods that count there; empty if none."""
    offered = node["status"].get("allocatable", node["status"].get("capacity", {}))
    for resource in (names.GPU_MEM, names.GPU_COUNT, names.MPS_GPU, names.NVIDIA_GPU):
        need = requests(pod, resource)
        if need and need + sum(requests(other, resource) for other in others) > number(offered.get(resource, 0)):
            return f"Insufficient {resource}"
    return ""
