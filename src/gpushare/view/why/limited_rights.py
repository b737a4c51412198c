"""The answer for somebody who may not read the whole cluster: what the pod itself tells, or a running extender.

Pure. A pod in one's own namespace shows kube-scheduler's message, gpushare's event and the GPUs it has.
"""

from collections.abc import Collection

import msgspec

from gpushare.core.annotations.pod_gpus import Allocation
from gpushare.core.explain import condition, report, views
from gpushare.core.explain.report import Explanation, Outcome, Quote, Spot, Way
from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts, Request
from gpushare.view.why import pod_details

NO_WORD = "no scheduler has looked at it yet"
NO_NODE_FOR_IT = "kube-scheduler has no node for it"
UNSCHEDULABLE, UNKNOWN = "Unschedulable", "Unknown"


def from_pod(facts: PodFacts, quote: Quote | None, event: pod_details.Event | None) -> Explanation:
    """gpushare's part as far as the pod alone tells it. `event`: gpushare's last one about the pod."""
    if facts.node and isinstance(facts.request, Request):
        owner = report.GPUSHARE if facts.running else report.KUBELET
        outcome = Outcome("runs", owner, report.BOUND, f"has {facts.node}")
        return views.gpushare_part(facts, outcome, has=_annotated(facts, facts.request))
    refusal = condition.refusal_in(quote.message) if quote is not None else ""
    owner = report.GPUSHARE if refusal else report.SCHEDULER
    code, message = (UNSCHEDULABLE, refusal or NO_NODE_FOR_IT) if quote is not None else (UNKNOWN, NO_WORD)
    detail = (event.message or "").partition(" More: ")[0] if event is not None else ""
    return views.gpushare_part(facts, Outcome("refused", owner, code, message, detail))


def redacted(answer: Explanation, namespaces: Collection[str]) -> Explanation:
    """An answer without the names of pods in other namespaces than these."""
    return msgspec.structs.replace(
        answer,
        ways=[_redacted(way, namespaces) for way in answer.ways],
        beside=[holder for holder in answer.beside if namespace_of(holder.pod) in namespaces],
        before=[name if namespace_of(name) in namespaces else "" for name in answer.before],
    )


def named(answer: Explanation) -> set[str]:
    """The namespaces of the other pods that an answer names."""
    pods = [*answer.before, *(holder.pod for holder in answer.beside)]
    for way in answer.ways:
        pods += [*(way.pods or ()), *(holder.pod for holder in way.holders or ())]
    return {namespace_of(pod) for pod in pods}


def namespace_of(pod: str) -> str:
    """Of a pod as an explanation names it: namespace/name."""
    return pod.partition("/")[0]


def _redacted(way: Way, namespaces: Collection[str]) -> Way:
    if all(namespace_of(pod) in namespaces for pod in way.pods or ()):
        return way
    return msgspec.structs.replace(
        way,
        count=way.count or len(way.pods or ()),
        pods=[pod for pod in way.pods or () if namespace_of(pod) in namespaces],
        holders=[holder for holder in way.holders or () if namespace_of(holder.pod) in namespaces],
    )


def _annotated(facts: PodFacts, request: Request) -> list[Spot]:
    """The GPUs that the pod's annotations name. Whether the node has them cannot be known here."""
    try:
        allocation = msgspec.json.decode(facts.annotation(names.ALLOCATION) or "{}", type=Allocation)
        amounts = [(int(gpu), units) for held in allocation.values() for gpu, units in held.items()]
        if not amounts:
            amounts = [(int(facts.annotation(names.ALIYUN_IDX) or ""), request.amount)]
    except (msgspec.MsgspecError, ValueError):
        return []
    sums: dict[int, int] = {}
    for gpu, units in amounts:
        sums[gpu] = sums.get(gpu, 0) + units
    return [Spot(gpu, units, None, None) for gpu, units in sorted(sums.items())]
