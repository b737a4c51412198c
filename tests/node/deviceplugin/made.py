"""GPUs and pods to put into a `World`, in as few words as a test should need."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, NodeFacts, Pin, Unit

Object = dict[str, Any]
NODE = "gpu-a"


def facts(
    *totals: int, unhealthy: Mapping[int, str] | None = None, unit: Unit = "MiB", lost: Iterable[int] = ()
) -> NodeFacts:
    """A node with GPUs of these sizes. `unhealthy`: why, by index."""
    why = unhealthy or {}
    gpus = [Gpu(i, f"GPU-{i}", total, i not in why, why.get(i, "")) for i, total in enumerate(totals)]
    return NodeFacts(NODE, unit, Pin.PLUGIN, tuple(gpu for gpu in gpus if gpu.index not in set(lost)))


def pod(
    *memory: int,
    whole: int = 0,
    inits: Sequence[int] = (),
    sidecars: Sequence[int] = (),
    whole_inits: Sequence[int] = (),
    split: int = 1,
    name: str = "",
) -> Object:
    """Init containers first, then sidecars, then a container for each amount, then one for whole GPUs."""
    before = [_container(f"init-{i}", names.GPU_MEM, n) for i, n in enumerate(inits)]
    before += [_container(f"whole-init-{i}", names.GPU_COUNT, n) for i, n in enumerate(whole_inits)]
    before += [_container(f"side-{i}", names.GPU_MEM, n) | {"restartPolicy": "Always"} for i, n in enumerate(sidecars)]
    apps = [_container(f"main-{i}", names.GPU_MEM, n) for i, n in enumerate(memory)]
    if whole:
        apps.append(_container("whole", names.GPU_COUNT, whole))
    return {
        "metadata": {
            "name": name, "namespace": "default", "annotations": {names.GPU_COUNT: str(split)} if split > 1 else {}
        },
        "spec": {"initContainers": before, "containers": apps or [{"name": "plain"}]},
        "status": {"phase": "Pending"},
    }  # fmt: skip


def _container(name: str, resource: str, amount: int) -> Object:
    return {"name": name, "resources": {"limits": {resource: str(amount)}}}
