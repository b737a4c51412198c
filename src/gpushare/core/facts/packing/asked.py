"""CPU and memory that a pod asks of its node, as kube-scheduler counts them.

Every pod of the cluster is read, and a scheduler waits for some: few amounts are written in many pods, so each is read
once.
"""

from functools import lru_cache
from math import ceil

from gpushare.core.facts import objects, units

_MIB, _MOST = 1 << 20, 1 << 60  # nothing has more: very large numbers would cost time
_NOTHING = 0, 0


def cpu_and_memory(spec: objects.PodSpec) -> tuple[int, int]:
    """In thousandths and MiB. Init containers run before the others, beside the sidecars started before them: the
    larger of the two counts."""
    cpu = memory = first_cpu = first_memory = 0
    for container in spec.init_containers or ():
        more_cpu, more_memory = _of(container.resources)
        first_cpu, first_memory = max(first_cpu, cpu + more_cpu), max(first_memory, memory + more_memory)
        if container.restart_policy == "Always":
            cpu, memory = cpu + more_cpu, memory + more_memory
    for container in spec.containers or ():
        more_cpu, more_memory = _of(container.resources)
        cpu, memory = cpu + more_cpu, memory + more_memory
    if first_cpu or first_memory:
        cpu, memory = max(cpu, first_cpu), max(memory, first_memory)
    if spec.overhead:
        more_cpu, more_memory = _of(objects.ResourceNeeds(requests=spec.overhead))
        cpu, memory = cpu + more_cpu, memory + more_memory
    return cpu, -(-memory // _MIB)


def _of(resources: objects.ResourceNeeds | None) -> tuple[int, int]:
    """Thousandths and bytes. Where a request is missing, the limit, as the API server fills it in."""
    if resources is None:
        return _NOTHING
    requests, limits = resources.requests or {}, resources.limits or {}
    cpu, memory = requests.get("cpu", limits.get("cpu")), requests.get("memory", limits.get("memory"))
    return _read(cpu, 1000) if cpu is not None else 0, _read(memory, 1) if memory is not None else 0


def _read(quantity: objects.Quantity, parts: int) -> int:
    """Rounded up. What is unreadable, very long or negative is 0: no API server accepts it."""
    return 0 if isinstance(quantity, str) and len(quantity) > units.LONGEST else _known(quantity, parts)


@lru_cache(units.MOST_AMOUNTS)
def _known(quantity: objects.Quantity, parts: int) -> int:
    return min(max(ceil((units.exact(quantity) or 0) * parts), 0), _MOST)
