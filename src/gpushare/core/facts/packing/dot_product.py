"""`dotprod`: the node whose free CPU and GPU, as a vector, has the smallest product with what the pod asks (Tetris).

On the node, the fullest GPU that has room. Rounded as in the benchmark that `best_fit` names.
"""

from collections.abc import Sequence

from gpushare.core.facts.packing import gpus
from gpushare.core.facts.packing.best_fit import MOST_CPU, MOST_GPU
from gpushare.core.facts.packing.model import Ask, Choice, View


class DotProduct:
    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        gpu = gpus.tightest(ask, node)
        return None if gpu is None else Choice(self.planned(ask, node, gpus.without(ask, node, gpu)), gpu)

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        idle = gpus.idle(node.free, node)
        cpu = gpus.free_cpu(node) / MOST_CPU * (ask.cpu / MOST_CPU)
        gpu = idle / MOST_GPU * ((idle - gpus.idle(free, node)) / MOST_GPU)
        return -int(100 * (1 - (cpu + gpu) / 2))
