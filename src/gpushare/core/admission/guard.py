"""Which of the annotations that only gpushare writes does a write set, change or remove? And who writes GPUNodes?

deploy/guard.yaml is the same in CEL, and has the reasons: what a forged annotation could do.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpushare.core.facts import names

NAMESPACE: Final = "kube-system"  # where deploy/ puts everything; the operator has a namespace of its own
_ACCOUNT: Final = "system:serviceaccount:{namespace}:{name}"
_OURS: Final = ("gpushare-schd-extender", "gpushare-node", "gpushare-device-plugin", "gpushare-nvidia")
KETI: Final = (  # of deploy/keti: the extender, and the node part. Where the operator is, these are not
    _ACCOUNT.format(namespace="gpu", name="scheduler"),
    _ACCOUNT.format(namespace="gpu", name="keti-gpu-device-plugin"),
)
OF_PODS: Final = (
    names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV, names.ALIYUN_ASSIGNED, names.ALIYUN_ASSUME_TIME,
    names.ALLOCATION, names.EXTENDER, names.WOKEN, names.KEPT,
)  # fmt: skip
OF_CONTAINERS: Final = (names.VISIBLE_PREFIX, names.MPS_LIMIT_PREFIX)  # how the others begin
OF_NODES: Final = {
    names.VALIDATION: "gpushare-validator",
    names.TAINTED: "gpushare-operator",
}  # and who else writes them
MOST: Final = 1000  # annotations that are looked through: the policy needs n² steps for n of them
TOO_MANY: Final = f"more than {MOST} annotations cannot be looked through for those that only gpushare writes"
POD: Final = "only gpushare writes {keys}: leave it out of the pod, or of the template it is made from"
NODE: Final = "only gpushare writes {keys}: it says what the node has"
GPU_NODE: Final = "only gpushare writes GPUNodes: they say what GPUs do"

Annotations = Mapping[str, str]


class Writers(NamedTuple):
    """Who may write what, by user name."""

    all: tuple[str, ...]  # everything that is guarded
    also: Mapping[str, str]  # by annotation of nodes, who else writes this one


def writers(namespace: str) -> Writers:
    """With gpushare in this namespace. Accounts with the same names in any other may write nothing: there somebody else
    may have made them."""
    ours = tuple(_ACCOUNT.format(namespace=namespace, name=name) for name in _OURS)
    also = {key: _ACCOUNT.format(namespace=namespace, name=name) for key, name in OF_NODES.items()}
    return Writers((*ours, *KETI) if namespace == NAMESPACE else ours, also)


BY_DEFAULT: Final = writers(NAMESPACE)


def pod(user: str, before: Annotations, after: Annotations, by: Writers = BY_DEFAULT) -> str:
    """Why this user may not write these annotations of a pod, or of a binding; empty if allowed."""
    if user in by.all or before == after:
        return ""
    if max(len(before), len(after)) > MOST:
        return TOO_MANY
    keys = [key for key in OF_PODS if before.get(key) != after.get(key)]
    keys += [key for key in after if _of_a_container(key) and before.get(key) != after[key]]
    keys += [key for key in before if _of_a_container(key) and key not in after]
    return POD.format(keys=", ".join(keys)) if keys else ""


def node(user: str, before: Annotations, after: Annotations, by: Writers = BY_DEFAULT) -> str:
    """The same for a node. Removing is allowed: an admin does so when a node leaves gpushare. Where the node part still
    runs, it writes the annotation again at once."""
    if user in by.all:
        return ""
    guarded = [names.NODE_GPUS, *(key for key, account in by.also.items() if user != account)]
    keys = [key for key in guarded if key in after and after[key] != before.get(key)]
    return NODE.format(keys=", ".join(keys)) if keys else ""


def gpu_node(user: str, by: Writers = BY_DEFAULT) -> str:
    """Why this user may not make a GPUNode, or write its status; empty if allowed."""
    return "" if user in by.all else GPU_NODE


def _of_a_container(key: str) -> bool:
    return key.startswith(OF_CONTAINERS)
