"""What most policies that pack agree on: parts of GPUs in thousandths, and the fullest GPU that has room."""

from collections.abc import Sequence

from gpushare.core.facts.packing.model import UNKNOWN, Ask, View

WHOLE = 1000  # a GPU, whatever its memory


def tightest(ask: Ask, node: View) -> int | None:
    """The GPU with the fewest free units that are enough, of equal ones the first; None: no GPU has room."""
    best, least = None, 0
    for gpu, (free, total) in enumerate(zip(node.free, node.totals, strict=True)):
        if free >= (ask.units or total) and (best is None or free < least):
            best, least = gpu, free
    return best


def without(ask: Ask, node: View, gpu: int) -> Sequence[int]:
    """What the GPUs keep free if the pod is on this one."""
    free = list(node.free)
    free[gpu] -= ask.units or node.totals[gpu]
    return free


def idle(free: Sequence[int], node: View) -> int:
    """The parts of all GPUs together."""
    return sum([WHOLE * left // total for left, total in zip(free, node.totals, strict=True)])


def free_cpu(node: View) -> int:
    """Nothing if nobody told: then it counts for no node."""
    return 0 if node.cpu >= UNKNOWN else node.cpu
