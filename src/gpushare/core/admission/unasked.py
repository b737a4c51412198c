"""No GPU for a container that asks for none: its last NVIDIA_VISIBLE_DEVICES says `void`.

deploy/unasked.yaml is the same in CEL. Which namespaces are meant is said by their labels, never by the pod.
"""

from collections.abc import Mapping
from typing import Final

from gpushare.core.admission import containers
from gpushare.core.admission.containers import Addition, Object
from gpushare.core.facts import names, units

LABEL: Final = "gpushare.io/unasked"  # of a namespace: void or leave
VOIDED: Final = "void"
LEFT_ALONE: Final = "leave"
SYSTEM: Final = ("kube-system", "kube-public", "kube-node-lease", "gpu-operator", "nvidia-gpu-operator")
"""Namespaces whose pods see all GPUs on purpose, ours among them."""
EPHEMERAL: Final = "ephemeralContainers"
TOO_MANY: Final = "more than 500 containers cannot be looked through for those that ask for no GPU"
MOST_LIMITS: Final = 16  # limits of a container that are searched for slices
VOID: Final = {"name": names.VISIBLE_DEVICES, "value": VOIDED}


def applies(namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether pods of this namespace are changed."""
    label = labels.get(LABEL)
    return label == VOIDED or (label != LEFT_ALONE and namespace not in SYSTEM)


def system(namespace: str) -> list[str]:
    """The same, with gpushare in this namespace."""
    return list(dict.fromkeys((*SYSTEM, namespace)))


def too_many(pod: Object) -> str:
    """Why the pod is refused: it would be a way around. Empty if it is not."""
    lists = (containers.listed(pod, field) for field in (containers.APPS, containers.INITS, EPHEMERAL))
    return TOO_MANY if any(len(found) > containers.MOST for found in lists) else ""


def void(pod: Object) -> list[Addition]:
    """For each app and init container of a new pod."""
    by_others = not containers.spec(pod).get("nodeName")
    return [
        Addition((field, i, "env"), [dict(VOID)])
        for field in (containers.APPS, containers.INITS)
        for i, one in enumerate(containers.listed(pod, field))
        if not _is_counted(one, by_others=by_others) and not _is_void(one)
    ]


def void_debugging(pod: Object, before: Object) -> list[Addition]:
    """For each ephemeral container that is new: nobody can change those that exist already."""
    known = {str(one.get("name")) for one in containers.listed(before, EPHEMERAL)}  # it may be of any type
    return [
        Addition((EPHEMERAL, i, "env"), [dict(VOID)])
        for i, one in enumerate(containers.listed(pod, EPHEMERAL))
        if str(one.get("name")) not in known and not _is_void(one)
    ]


def _is_void(container: Object) -> bool:
    return containers.env(container)[-1:] == [VOID]


def _is_counted(container: Object, *, by_others: bool) -> bool:
    """Whether it asks for GPUs that a scheduler or a device plugin counts. In a pod that names its node only gpushare
    counts them: kubelet ignores resources that its node does not have."""
    limits, resources = containers.limits(container), list(names.PINNED)
    if by_others:
        resources += names.NVIDIA_GPUS
        slices = [name for name in limits if name.startswith(names.NVIDIA_SLICES)]
        resources += slices if len(limits) <= MOST_LIMITS else []
    if any((units.exact(limits.get(resource, 0)) or 0) > 0 for resource in resources):
        return True
    ours = (*names.PINNED, names.NVIDIA_GPU)
    return not limits.keys().isdisjoint(ours) and bool(containers.pinned_by(container))
