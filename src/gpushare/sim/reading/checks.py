"""Whether nodes and pods can be replayed at all, and if not, where the fault is. Pure."""

from collections.abc import Sequence

from gpushare.obs.errors import UserError
from gpushare.sim.reading.rows import fault
from gpushare.sim.trace import Node, Pod

MOST_AMOUNT = 10**12  # of CPU or memory: more than any machine has
MOST_GPU_MEMORY = 1 << 20  # MiB
MOST_GPUS = 1024  # of one node
MOST_SECONDS = 10**15  # of an arrival or a duration: a file may count thousandths

Placed = Sequence[tuple[str, Node]] | Sequence[tuple[str, Pod]]


def nodes(file: str, found: Sequence[tuple[str, Node]]) -> None:
    if not found:
        raise UserError(
            f"{file} has no nodes", "there is nothing to place pods on", "name a file with a row for each node"
        )
    _twice(file, "node", found)
    for place, node in found:
        _amounts(file, place, cpu_milli=node.cpu_milli, memory_mib=node.memory_mib)
        if len(node.gpus) > MOST_GPUS:
            raise fault(file, place, f"it has {len(node.gpus)} GPUs", f"a node has at most {MOST_GPUS} GPUs here")
        for gpu in node.gpus:
            if not 1 <= gpu.memory_mib <= MOST_GPU_MEMORY:
                why = f"a GPU has {gpu.memory_mib} MiB"
                raise fault(file, place, why, f"write 1 to {MOST_GPU_MEMORY} MiB for each GPU")
    if not any(node.gpus for _, node in found):
        raise UserError(f"no node of {file} has a GPU", "GPUs are what is given out", "name a file of nodes with GPUs")


def pods(file: str, found: Sequence[tuple[str, Pod]], among: Sequence[Node]) -> None:
    if not found:
        raise UserError(f"{file} has no pods", "there is nothing to place", "name a file with a row for each pod")
    _twice(file, "pod", found)
    sorts = one_of_each(among)
    known: dict[object, str] = {}
    for place, pod in found:
        _amounts(file, place, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)
        if not 0 <= pod.gpus <= MOST_GPUS or not 0 <= pod.gpu_memory_mib <= MOST_GPU_MEMORY:
            why = f"it asks {pod.gpus} GPUs and {pod.gpu_memory_mib} MiB of each"
            raise fault(file, place, why, f"write 0 to {MOST_GPUS} GPUs, and 0 to {MOST_GPU_MEMORY} MiB")
        if pod.gpu_memory_mib and not pod.gpus:
            why = f"it asks {pod.gpu_memory_mib} of no GPU"
            raise fault(file, place, why, "write how many GPUs it uses, or 0 for the memory too")
        if not (0 <= pod.arrival <= MOST_SECONDS and 0 <= (pod.duration or 0) <= MOST_SECONDS):
            why = f"its arrival or duration is negative, or more than {MOST_SECONDS:,} seconds"
            raise fault(file, place, why, "write seconds, 0 or more")
        shape = pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_memory_mib
        if shape not in known:
            known[shape] = too_large(pod, sorts)
        if known[shape]:
            raise fault(file, place, f"{pod.name:.80} {known[shape]}", "leave the pod out, or add a node that it fits")


def kept_off(pods: Sequence[Pod], nodes: Sequence[Node]) -> list[str]:
    """The names of pods that are kept off every node that is large enough by the models that they may use."""
    sorts, known, found = one_of_each(nodes), dict[object, bool](), list[str]()
    for pod in pods:
        kind = pod.models, pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_memory_mib
        if pod.models and kind not in known:
            known[kind] = bool(too_large(pod, [node for node in sorts if pod.may_use(node)]))
        if pod.models and known[kind]:
            found.append(pod.name)
    return found


def one_of_each(nodes: Sequence[Node]) -> list[Node]:
    """One node of each sort."""
    return list({(node.cpu_milli, node.memory_mib, node.gpus): node for node in nodes}.values())


def too_large(pod: Pod, able: Sequence[Node]) -> str:
    """Why no node could take the pod if it were empty, models aside; empty: one could."""
    if any(_fits(pod, node) for node in able):  # nearly always the first: there may be thousands of sorts
        return ""
    sized = f"GPUs of {pod.gpu_memory_mib} MiB"
    for what, asked, has in (
        ("GPUs", pod.gpus, lambda node: len(node.gpus)),
        (sized, pod.gpus, lambda node: sum([gpu.memory_mib >= pod.gpu_memory_mib for gpu in node.gpus])),
        ("thousandths of a CPU", pod.cpu_milli, lambda node: node.cpu_milli),
        ("MiB of memory", pod.memory_mib, lambda node: node.memory_mib),
    ):
        most = max([has(node) for node in able], default=0)
        able = [node for node in able if has(node) >= asked]
        if not able:
            return f"asks {asked} {what}; the most that a node has is {most}"
    return ""


def _fits(pod: Pod, node: Node) -> bool:
    if pod.cpu_milli > node.cpu_milli or pod.memory_mib > node.memory_mib:
        return False
    return sum([gpu.memory_mib >= pod.gpu_memory_mib for gpu in node.gpus]) >= pod.gpus


def _twice(file: str, what: str, found: Placed) -> None:
    places: dict[str, str] = {}
    for place, one in found:
        before = places.setdefault(one.name, place)
        if before != place:
            why = f"{before} has a {what} {one.name:.80} too"
            raise fault(file, place, why, f"give each {what} a name of its own")


def _amounts(file: str, place: str, **amounts: int) -> None:
    for name, amount in amounts.items():
        if not 0 <= amount <= MOST_AMOUNT:
            raise fault(file, place, f"{name} is {amount}", f"write a whole number for {name}, 0 or more")
