"""What a policy knows of the pods that come: it learns from those that came, as in a live cluster, or is told. Pure."""

from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.packing.model import Ask, Mixture
from gpushare.core.facts.policies import POLICIES
from gpushare.core.scheduling.mix import Mix
from gpushare.sim.cluster import Cluster, Pods
from gpushare.sim.trace import Trace


class Learner:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._mix = cluster, Mix()
        self._learns = POLICIES[cluster.policy].packing is not None

    def came(self, pod: PodFacts) -> None:
        if not self._learns:
            return
        self._mix.add(pod.uid, Ask.of(pod), pod.rules)
        if self._mix.due():
            self._cluster.ledger.learn(self._mix.mixture(self._cluster.ledger, self._cluster.reach))

    def gone(self, pod: PodFacts) -> None:
        self._mix.gone(pod.uid)


def true_mix(trace: Trace, cluster: Cluster) -> Mixture:
    """Of all pods of a trace, also those that come later."""
    mix, pods = Mix(), Pods()
    for number, pod in enumerate(trace.pods):
        facts = pods.facts(pod, str(number))
        mix.add(facts.uid, Ask.of(facts), facts.rules)
    return mix.mixture(cluster.ledger, cluster.reach)
