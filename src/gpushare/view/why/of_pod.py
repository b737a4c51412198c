"""The explanation of a pod that exists, once it and the cluster are read: for all commands and pages that give it.

No I/O. What the API server shows of the pod comes in: its objects, its events, and what its node's GPUs do.
"""

from collections.abc import Mapping

import msgspec

from gpushare.core.explain import verdict
from gpushare.core.explain.report import Explanation, Quote
from gpushare.core.facts import objects
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.facts.vitals import FullStatus, Status
from gpushare.core.ledger.ledger import Ledger
from gpushare.view import sold
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import by_count, evidence, explanation, placing, pod_details
from gpushare.view.why.evidence import Evidence
from gpushare.view.why.scheduler_checks import SchedulerChecks


def waits(pod: objects.Pod) -> bool:
    """Whether it has no node yet: only then do its events say why."""
    return not pod.spec.node_name and pod.status.phase not in objects.FINISHED


def by_number(pod: pod_details.Pod, facts: PodFacts) -> bool:
    """Whether it asks for GPUs by number: then gpushare does not decide about it."""
    return facts.request is None and bool(sold.asked(pod))


def alone(pod: pod_details.Pod, facts: PodFacts, quote: Quote | None, now: float) -> Explanation | None:
    """The answer if it is the same whatever the cluster is like; else None."""
    if (isinstance(facts.request, Request) or by_number(pod, facts)) and not facts.finished:
        return None
    return explanation.build(Evidence(pod, verdict.explain(Ledger(), facts), quote=quote, now=now))


def gather(
    cluster: Snapshot, pod: pod_details.Pod, facts: PodFacts, policy: str, found: Mapping[str, Status] | None
) -> Evidence:
    """What is known from the cluster. `policy`: for a pod that names none; empty: the default. `found`: what all GPUs
    do, if `placing.gives_points`."""
    checks = SchedulerChecks(cluster)
    if by_number(pod, facts):
        return by_count.gather(cluster, checks, pod)
    by = placing.prepared(cluster, found, policy, packs=placing.packs(facts, policy))
    return evidence.gather(cluster, checks, pod, placing.with_needs(by, facts, pod), by)


def explain(known: Evidence, quote: Quote | None, doing: FullStatus | None, now: float) -> Explanation:
    """With what the API server shows. `doing`: what the GPUs of its node do."""
    return explanation.build(msgspec.structs.replace(known, quote=quote, doing=doing, now=now))
