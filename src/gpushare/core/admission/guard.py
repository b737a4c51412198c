"""Which of the annotations that only gpushare writes does a write set, change or remove? And who writes GPUNodes?

deploy/guard.yaml is the same in CEL, and has the reasons: what a forged annotation could do.
"""

from collections.abc import Mapping
from typing import Final

from gpushare.core.facts import names

ACCOUNTS: Final = (
    "system:serviceaccount:kube-system:gpushare-schd-extender",
    "system:serviceaccount:kube-system:gpushare-node",
    "system:serviceaccount:kube-system:gpushare-device-plugin",
    "system:serviceaccount:kube-system:gpushare-nvidia",
    "system:serviceaccount:gpu:scheduler",  # of deploy/keti: the extender
    "system:serviceaccount:gpu:keti-gpu-device-plugin",  # and the node part
)
OF_PODS: Final = (
    names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV, names.ALIYUN_ASSIGNED, names.ALIYUN_ASSUME_TIME,
    names.ALLOCATION, names.EXTENDER, names.WOKEN, names.KEPT,
)  # fmt: skip
OF_CONTAINERS: Final = (names.VISIBLE_PREFIX, names.MPS_LIMIT_PREFIX)  # how the others begin
MOST: Final = 1000  # annotations that are looked through: the policy needs n² steps for n of them
TOO_MANY: Final = f"more than {MOST} annotations cannot be looked through for those that only gpushare writes"
POD: Final = "only gpushare writes {keys}: leave it out of the pod, or of the template it is made from"
NODE: Final = f"only gpushare writes {names.NODE_GPUS}: it says what the node has"
GPU_NODE: Final = "only gpushare writes GPUNodes: they say what GPUs do"

Annotations = Mapping[str, str]


def pod(user: str, before: Annotations, after: Annotations) -> str:
    """Why this user may not write these annotations of a pod, or of a binding; empty if allowed."""
    if user in ACCOUNTS or before == after:
        return ""
    if max(len(before), len(after)) > MOST:
        return TOO_MANY
    keys = [key for key in OF_PODS if before.get(key) != after.get(key)]
    keys += [key for key in after if _of_a_container(key) and before.get(key) != after[key]]
    keys += [key for key in before if _of_a_container(key) and key not in after]
    return POD.format(keys=", ".join(keys)) if keys else ""


def node(user: str, before: Annotations, after: Annotations) -> str:
    """The same for a node. Removing is allowed: an admin does so when a node leaves gpushare. Where the node part still
    runs, it writes the annotation again at once."""
    written = after.get(names.NODE_GPUS)
    return NODE if user not in ACCOUNTS and written is not None and written != before.get(names.NODE_GPUS) else ""


def gpu_node(user: str) -> str:
    """Why this user may not make a GPUNode, or write its status; empty if allowed."""
    return "" if user in ACCOUNTS else GPU_NODE


def _of_a_container(key: str) -> bool:
    return key.startswith(OF_CONTAINERS)
