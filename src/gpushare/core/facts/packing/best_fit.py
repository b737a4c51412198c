"""`best-fit`: the node that keeps the least CPU and GPU. On the node, the fullest GPU that has room."""

from collections.abc import Sequence

from gpushare.core.facts.packing.model import Ask, Choice, Mixture, View

MOST_CPU, MOST_GPU = 128_000, 8_000  # of one node, in thousandths: what all nodes are compared with


class BestFit:
    def __init__(self, mixture: Mixture) -> None:
        pass

    def one_gpu(self, ask: Ask, node: View) -> Choice | None:
        able = [(free, gpu) for gpu, free in enumerate(node.free) if free >= (ask.units or node.totals[gpu])]
        if not able:
            return None
        gpu = min(able)[1]
        free = list(node.free)
        free[gpu] -= ask.units or node.totals[gpu]
        return Choice(self.planned(ask, node, free), gpu)

    def planned(self, ask: Ask, node: View, free: Sequence[int]) -> int:
        gpu = sum([1000 * left // total for left, total in zip(free, node.totals, strict=True)])
        cpu = node.cpu - ask.cpu
        return -int(100 * (1 - (0.5 * cpu / MOST_CPU + 0.5 * gpu / MOST_GPU)))
