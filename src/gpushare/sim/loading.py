"""The protocol of the published benchmark: pods come one after the other until the cluster is more than full.

None ends, and none that found no place is tried again. After each, what is given out and what is fragmented is noted.
Pure.
"""

from collections.abc import Callable, Sequence

from gpushare.core.facts.packing import fgd
from gpushare.sim.cluster import Cluster, Pods
from gpushare.sim.fragments import Fragments
from gpushare.sim.learning import Learner, true_mix
from gpushare.sim.results import Points, Run, class_of
from gpushare.sim.trace import Trace

GIVEN_THE_MIX = frozenset([fgd.NAME])  # published so: it knows all pods before the first comes. Others learn


def replay(
    trace: Trace,
    policy: str,
    order: Sequence[int],
    ranks: Sequence[int],
    most_load: float,
    step: Callable[[], None] = lambda: None,
) -> Run:
    """`order`: which pods come, as positions in the trace. `step` is called after each."""
    cluster, pods = Cluster(trace.nodes, ranks, policy), Pods()
    mix = true_mix(trace, cluster)
    if policy in GIVEN_THE_MIX:
        cluster.ledger.learn(mix)
    points, fragments, learner = Points(trace), Fragments(cluster, mix), Learner(cluster)
    rejected: dict[str, int] = {}
    came = 0
    for position in order:
        pod = trace.pods[position]
        load = points.came(pod)
        if load > 100 * most_load:
            break
        came += 1
        facts = pods.facts(pod, str(came))
        if policy not in GIVEN_THE_MIX:
            learner.came(facts)
        node = cluster.place(facts)
        if node is None:
            rejected[class_of(pod)] = rejected.get(class_of(pod), 0) + 1
        else:
            fragments.changed(node)
        points.add(load, cluster.held, fragments.amount, fragments.idle)
        step()
    return Run(policy, came, rejected, points.all())
