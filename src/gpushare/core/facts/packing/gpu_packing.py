"""`gpu-packing`: GPUs in use before unused ones, and nodes in use before unused ones (AntMan).

A pod without GPUs goes anywhere. Numbers as in the benchmark that `best_fit` names.
"""

from collections.abc import Sequence

from gpushare.core.facts.packing import gpus
from gpushare.core.facts.packing.model import Ask, Choice, View

IN_USE, UNUSED_GPU, UNUSED_NODE = 100, 50, 33  # the best score of each case: it falls to the next at most


class GpuPacking:
    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        gpu = gpus.tightest(ask, node)
        return None if gpu is None else Choice(-_score(node, (gpu,)), gpu)

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        taken = [gpu for gpu, left in enumerate(free) if left < node.free[gpu]]
        return -_score(node, taken) if taken else 0


def _score(node: View, taken: Sequence[int]) -> int:
    whole = [free == total for free, total in zip(node.free, node.totals, strict=True)]
    if all(whole):
        return max(UNUSED_NODE - len(whole), len(whole))
    unused = sum([whole[gpu] for gpu in taken])
    if unused:
        return max(UNUSED_GPU - unused, UNUSED_NODE)
    percent = sum([gpus.WHOLE * node.free[gpu] // node.totals[gpu] * 100 // gpus.WHOLE for gpu in taken])
    return max(IN_USE - percent // 10, UNUSED_GPU)
