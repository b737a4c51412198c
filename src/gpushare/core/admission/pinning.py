"""Direct pinning: a container that asks for GPUs reads them from an annotation of its own, which the binding writes.
With the pin comes what an MPS share needs (`mps.py`).

deploy/admission.yaml and deploy/admission-nvidia.yaml are the same in CEL. A pod may come several times: others add
containers after us, two policies may be in force, and the webhook beside them. Nobody is pinned twice, and no two
containers share an annotation.
"""

from collections.abc import Collection
from typing import Final

from gpushare.core.admission import containers, mps
from gpushare.core.admission.containers import Addition, Object
from gpushare.core.facts import names, units

NAMESPACES: Final = {"gpushare.io/pin": "direct"}  # label of the namespaces that are meant, if not all are
NVIDIA_LEFT: Final = ("gpushare.io/nvidia-gpu", "leave")  # label of namespaces whose nvidia.com/gpu pods are not meant
CONTAINER_MEMORY: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
ALIYUN: Final = (names.ALIYUN_IDX, names.ALIYUN_POD, names.ALIYUN_DEV)
KINDS: Final = {containers.APPS: names.VISIBLE_PREFIX, containers.INITS: f"{names.VISIBLE_PREFIX}init-"}
# What comes before a container's position. The position alone may be in use: others add containers in front.
RUNS: Final = ("", *(f"{run}000" for run in range(1, 10)))
MOST_MEMORY: Final = 10**12  # what is more is no GPU memory, and CEL cannot write every number


def pin(pod: Object, resources: Collection[str] = names.PINNED) -> list[Addition]:
    """For each container that has a limit of one of these resources, and is not pinned yet."""
    lists = {field: containers.listed(pod, field) for field in (containers.APPS, containers.INITS)}
    if not lists[containers.APPS] or max(map(len, lists.values())) > containers.MOST:
        return []  # such a pod goes to no node that pins directly
    every = [(field, i, one) for field, found in lists.items() for i, one in enumerate(found)]
    used = {containers.pinned_by(one) for _, _, one in every}
    additions, folders = [], []
    for field, i, one in every:
        if containers.limits(one).keys().isdisjoint(resources) or containers.pinned_by(one):
            continue
        additions.append(Addition((field, i, "env"), _entries(pod, one, _key(KINDS[field], i, used))))
        if mps.asks(one):
            needed = mps.mounted(pod, one)
            additions.append(mps.mounts((field, i), needed))
            folders += needed
    additions.append(mps.volumes(pod, folders))
    return [addition for addition in additions if addition.entries]


def _key(kind: str, number: int, used: Collection[str]) -> str:
    """An annotation that no container uses; the last one tried if all are in use: such a pod is placed nowhere."""
    keys = [f"{kind}{run}{number}" for run in RUNS]
    return next((key for key in keys if containers.REFERENCE.format(key=key) not in used), keys[-1])


def _entries(pod: Object, container: Object, key: str) -> list[Object]:
    """The GPUs come last: of two entries with one name the last one counts, so it wins over a tenant's own."""
    entries: list[Object] = []
    memory = containers.limits(container).get(names.GPU_MEM)
    amount = units.exact(memory) if isinstance(memory, str | int | float) else None
    if amount is not None and amount.denominator == 1 and abs(amount) < MOST_MEMORY:
        entries.append({"name": CONTAINER_MEMORY, "value": str(amount)})
    if mps.asks(container):
        entries += mps.entries(pod, container, key)
    entries += [containers.reference(name, name) for name in ALIYUN]
    return [*entries, containers.reference(names.VISIBLE_DEVICES, key)]
