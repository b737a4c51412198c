"""GPUs and pods to put into a `World`, in as few words as a test should need."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpushare.core.facts.model import Gpu, NodeFacts, Pin, Unit
from tests.support import objects

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
    before: Object = {f"init-{i}": amount for i, amount in enumerate(inits)}
    before |= {f"whole-init-{i}": {"count": amount} for i, amount in enumerate(whole_inits)}
    before |= {f"side-{i}": {"mem": amount, "sidecar": True} for i, amount in enumerate(sidecars)}
    apps: Object = {f"main-{i}": amount for i, amount in enumerate(memory)}
    if whole:
        apps["whole"] = {"count": whole}
    words = {"name": name, "init": before, "containers": apps or {"plain": None}}
    pod = objects.pod(words | ({"split": split} if split > 1 else {}))
    del pod["metadata"]["uid"]
    return pod
