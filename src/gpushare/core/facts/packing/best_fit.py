"""`best-fit`: the node that keeps the least CPU and GPU. On the node, the fullest GPU that has room.

As in the benchmark of fragmentation gradient descent (Weng et al., USENIX ATC 2023): the score is a whole number of
0 to 100, and every node is compared with one that has 128 cores and 8 GPUs.
"""

from collections.abc import Sequence

from gpushare.core.facts.packing import gpus
from gpushare.core.facts.packing.model import UNKNOWN, Ask, Choice, View

MOST_CPU, MOST_GPU = 128_000, 8_000  # of one node, in thousandths


class BestFit:
    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        gpu = gpus.tightest(ask, node)
        return None if gpu is None else Choice(self.planned(ask, node, gpus.without(ask, node, gpu)), gpu)

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        cpu = 0 if node.cpu >= UNKNOWN else node.cpu - ask.cpu
        return -int(100 * (1 - (cpu / MOST_CPU * 0.5 + gpus.idle(free, node) / MOST_GPU * 0.5)))
