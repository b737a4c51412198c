"""`gpu-clustering`: nodes that hold pods of the same number of GPUs (a part of one counts for itself; Gandiva).

Of those the fullest node, and on it the fullest GPU that has room. A pod without GPUs goes anywhere. Numbers as in the
benchmark that `best_fit` names.
"""

from collections.abc import Sequence

from gpushare.core.facts.packing import gpus
from gpushare.core.facts.packing.best_fit import MOST_GPU
from gpushare.core.facts.packing.model import Ask, Choice, View

ONLY_SUCH, SUCH_TOO, NONE_YET, ONLY_OTHERS = 75, 50, 25, 0
FULLEST = 25  # points of a node without anything idle


class GpuClustering:
    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        gpu = gpus.tightest(ask, node)
        if gpu is None:
            return None
        part = ask.units and ask.units < node.totals[gpu]
        return Choice(_key(0 if part else 1, node), gpu)

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        return _key(ask.gpus, node) if ask.gpus else 0


def _key(held: int, node: View) -> int:
    if held in node.held:
        company = ONLY_SUCH if len(node.held) == 1 else SUCH_TOO
    else:
        company = ONLY_OTHERS if node.held else NONE_YET
    return -(FULLEST * (MOST_GPU - gpus.idle(node.free, node)) // MOST_GPU + company)
