"""How much of the free GPUs is of no use, kept up to date node by node: FGD's measure, with the true mix of a trace.

In thousandths of a GPU. Pure.
"""

from gpushare.core.facts.packing import fgd, gpus
from gpushare.core.facts.packing.fgd import Fgd
from gpushare.core.facts.packing.model import Mixture
from gpushare.sim.cluster import Cluster


class Fragments:
    def __init__(self, cluster: Cluster, mixture: Mixture) -> None:
        own = cluster.ledger.scorer(fgd.NAME) if cluster.ledger.mixture is mixture else None
        self._measure, self._view = own if isinstance(own, Fgd) else Fgd(mixture), cluster.view
        self._known: dict[str, tuple[int, int]] = {}  # by node: its fragments and what is idle
        self._fragments = self.idle = 0
        for name in cluster.names:
            self.changed(name)

    def changed(self, node: str) -> None:
        view = self._view(node)
        fragments, idle = self._known.get(node, (0, 0))
        now = self._known[node] = self._measure.fragment(view), gpus.idle(view.free, view)
        self._fragments += now[0] - fragments
        self.idle += now[1] - idle

    @property
    def amount(self) -> float:
        return self._fragments / self._measure.count
