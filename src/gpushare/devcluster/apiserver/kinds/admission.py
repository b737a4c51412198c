"""What the shipped admission policies do to a new pod, without a policy engine. Pure.

It does exactly what the policies do, so that a pod in the embedded cluster has the same containers as in a real one.
deploy/admission.yaml (`pin`): a container that asks for GPU memory or whole GPUs gets env entries that refer to
annotations, which the binding writes. deploy/unasked.yaml (`void`): a container that asks for no GPU sees none.
"""

from collections.abc import Mapping
from typing import Final

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.kinds import quantity
from gpushare.devcluster.apiserver.status import Object

NAMESPACES: Final = {"gpushare.io/pin": "direct"}  # label of the namespaces that the policy applies to, if not to all
MOST_CONTAINERS: Final = 500  # of each list; a pod with more is not changed
ASKS: Final = (names.GPU_MEM, names.GPU_COUNT)
CONTAINER_MEMORY: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
ALIYUN: Final = (names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV)
SECOND_RUN: Final = "1000"  # prefix for a container that was added after the first run
REFERENCE: Final = "metadata.annotations['{key}']"
_PINNED: Final = f"metadata.annotations['{names.VISIBLE_PREFIX}"
_LARGEST: Final = 2**63 - 1

UNASKED: Final = "gpushare.io/unasked"  # label of a namespace: void or leave
LEFT: Final = ("kube-system", "kube-public", "kube-node-lease", "gpu-operator", "nvidia-gpu-operator")
MOST_LIMITS: Final = 16  # limits of a container that are searched for slices
VOID: Final = {"name": names.VISIBLE_DEVICES, "value": "void"}
TOO_MANY: Final = (
    "ValidatingAdmissionPolicy 'gpushare-unasked' with binding 'gpushare-unasked' denied request: more than 500 "
    "containers cannot be looked through for those that ask for no GPU"
)


def pin(pod: Object) -> None:
    """Adds the env entries, in place."""
    apps, inits = pod["spec"].get("containers") or [], pod["spec"].get("initContainers") or []
    if not apps or len(apps) > MOST_CONTAINERS or len(inits) > MOST_CONTAINERS:
        return
    asking = [(f"{names.VISIBLE_PREFIX}{{again}}{i}", container) for i, container in enumerate(apps)]
    asking += [(f"{names.VISIBLE_PREFIX}init-{{again}}{i}", container) for i, container in enumerate(inits)]
    asking = [(key, container) for key, container in asking if any(resource in _limits(container) for resource in ASKS)]
    again = SECOND_RUN if any(_pinned(container) for _, container in asking) else ""
    for key, container in asking:
        if not _pinned(container):
            container["env"] = [*(container.get("env") or []), *_entries(container, key.format(again=again))]


def _entries(container: Object, key: str) -> list[Object]:
    """The GPUs come last: of two entries with one name the last one counts, so it wins over a tenant's own."""
    memory = _limits(container).get(names.GPU_MEM)
    amount = None if memory is None else quantity.value(memory)
    entries: list[Object] = []
    if amount is not None and amount.denominator == 1 and abs(amount) <= _LARGEST:
        entries.append({"name": CONTAINER_MEMORY, "value": str(amount)})
    for name, annotation in (*((name, name) for name in ALIYUN), (names.VISIBLE_DEVICES, key)):
        reference = {"apiVersion": "v1", "fieldPath": REFERENCE.format(key=annotation)}
        entries.append({"name": name, "valueFrom": {"fieldRef": reference}})
    return entries


def _limits(container: Object) -> Object:
    return container["resources"].get("limits") or {}


def _pinned(container: Object) -> bool:
    env = container.get("env") or []
    if not env or env[-1].get("name") != names.VISIBLE_DEVICES:
        return False
    reference = (env[-1].get("valueFrom") or {}).get("fieldRef") or {}
    return str(reference.get("fieldPath", "")).startswith(_PINNED)


def void(pod: Object, namespace: str, labels: Mapping[str, str]) -> str:
    """Adds the env entry in place, if the policy applies to a namespace with these labels. Returns why the pod is
    refused; empty if it is not."""
    label = labels.get(UNASKED)
    if label == "leave":
        return ""
    lists = [pod["spec"].get("containers") or [], pod["spec"].get("initContainers") or []]
    if any(len(containers) > MOST_CONTAINERS for containers in lists):
        return TOO_MANY
    if label == "void" or namespace not in LEFT:
        for container in (container for containers in lists for container in containers):
            _void(container, by_others=not pod["spec"].get("nodeName"))
    return ""


def _void(container: Object, *, by_others: bool) -> None:
    env = container.get("env") or []
    if not _is_counted(container, by_others=by_others) and env[-1:] != [VOID]:
        container["env"] = [*env, dict(VOID)]


def _is_counted(container: Object, *, by_others: bool) -> bool:
    """Whether it asks for GPUs that a scheduler or a device plugin counts. In a pod that names its node only gpushare
    counts them: kubelet ignores resources that its node does not have."""
    limits, resources = _limits(container), list(ASKS)
    if by_others:
        resources += names.NVIDIA_GPUS
        slices = [name for name in limits if name.startswith(names.NVIDIA_SLICES)]
        resources += slices if len(limits) <= MOST_LIMITS else []
    if any(quantity.value(limits.get(resource, 0)) > 0 for resource in resources):
        return True
    return any(resource in limits for resource in ASKS) and _pinned(container)
