"""What a policy knows of the pods that come: it learns from those that came, as in a live cluster, or is told. Pure."""

import msgspec

from gpushare.core.facts.model import PodFacts
from gpushare.core.facts.packing.model import Ask, Mixture, PodType
from gpushare.core.scheduling.mix import Mix
from gpushare.sim.cluster import Cluster
from gpushare.sim.trace import Trace


class Learner:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._mix = cluster, Mix()
        self._learns = cluster.policy.packing is not None

    def came(self, pod: PodFacts) -> None:
        if not self._learns:
            return
        self._mix.add(pod.uid, Ask.of(pod), pod.rules)
        if self._mix.due():
            self._cluster.ledger.learn(self._mix.mixture(self._cluster.ledger, self._cluster.reach))
            self._mix.learned()

    def gone(self, pod: PodFacts) -> None:
        self._mix.gone(pod.uid)


def true_mix(trace: Trace, cluster: Cluster) -> Mixture:
    """Of all pods of a trace, also those that come later. The order in which a pod names its models tells it from
    others, as in the published benchmark."""
    counts: dict[tuple[Ask, tuple[str, ...]], int] = {}
    for pod in trace.pods:
        kind = Ask(pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_memory_mib), pod.models
        counts[kind] = counts.get(kind, 0) + 1
    types = [
        PodType(ask, count, frozenset(models) if models else None, "|".join(models))
        for (ask, models), count in counts.items()
    ]
    return msgspec.structs.replace(Mix().mixture(cluster.ledger, cluster.reach), pods=tuple(types))
