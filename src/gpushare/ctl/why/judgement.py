"""What is to be said about one pod: gpushare's part from the core, kube-scheduler's and kubelet's added to it.

Pure: the cluster as it was read and one pod in, an `Explanation` out. Whose "no" it is stays apart: `owner` says it,
and each node has both columns.
"""

from collections.abc import Collection, Iterable

import msgspec

from gpushare.core.annotations.pod_gpus import Allocation
from gpushare.core.explain import condition, report, verdict
from gpushare.core.explain.report import Explanation, PodView, Quote, Spot, Way
from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.facts.request import FINISHED
from gpushare.core.placement import fit
from gpushare.ctl.why import pod_details, scheduler_checks, stuck
from gpushare.ctl.why.scheduler_checks import Keeping, Rest
from gpushare.view.snapshot import Snapshot
from gpushare.view.usage import UNASKED, UNUSABLE

NOT_STARTED = "container {container} has not started: {reason}"
NOT_RUNNING = "container {container} is not running: {reason}"
NOT_YET = "kubelet has not started it yet"
NO_WORD = "no scheduler has looked at it yet"
NO_NODE_FOR_IT = "kube-scheduler has no node for it"
COMPUTE_HERE = "leave out --extender to compute it here"
UNSCHEDULABLE, UNKNOWN = "Unschedulable", "Unknown"


def judged(
    world: Snapshot, others: Rest, pod: pod_details.Pod, facts: PodFacts, *, among: Collection[str] | None = None
) -> Explanation:
    """What the core says, by what kube-scheduler leaves to it. `among`: the only nodes that are looked at."""
    if not isinstance(facts.request, Request) or facts.node or facts.finished:
        return verdict.explain(world.ledger, facts)
    keeping = others.keeping(pod, facts)
    barred = {name for name, found in keeping.items() if found}
    said = verdict.explain(world.ledger, facts, barred=barred, among=among)
    return with_rest(said, world, keeping, among)


def with_rest(
    said: Explanation, world: Snapshot, keeping: Keeping, among: Collection[str] | None = None
) -> Explanation:
    """Each node with what keeps kube-scheduler from it, and nodes that share no GPU."""
    barred = {name for name, found in keeping.items() if found}
    said.ways = [way for way in said.ways if way.node not in barred]
    if said.verdict == "fits" and not said.ways:
        fitting = [view.name for view in said.nodes if view.fits and view.name not in barred]
        said = verdict.kept_off(said) if not fitting else said
        said.ways = [Way("wait", node=fitting[0])] if fitting else []
    if said.code == report.KEPT_OFF:
        said.ways = scheduler_checks.tolerate(said.nodes, keeping)
    more, said.without_gpu = scheduler_checks.others(world, {view.name for view in said.nodes}, among)
    said.nodes = [*said.nodes, *more]
    for view in said.nodes:
        view.scheduler = scheduler_checks.said(keeping.get(view.name, []))
    down = fit.PLUGIN_DOWN
    if said.code == fit.NO_SHARED_GPU.code and any(v.gpushare and v.gpushare.code == down.code for v in said.nodes):
        said.verdict, said.code, said.message = "refused", down.code, down.message
    if said.request is not None and said.request.unit is None:
        said.request.unit = next((view.unit for view in said.nodes if view.unit), None)
    return said


def finished(said: Explanation, pod: pod_details.Pod, quote: Quote | None, now: float) -> Explanation:
    """The same with the pod as the API server shows it, what kube-scheduler said, and what kubelet is at."""
    said = about(said, pod)
    if pod.spec.node_name or pod.status.phase in FINISHED:
        return _with_kubelet(said, pod)
    said.scheduler = quote
    said.checks = stuck.checks(pod, quote, now) if said.code == report.FITS else stuck.unready(pod)
    return said


def about(said: Explanation, pod: pod_details.Pod) -> Explanation:
    """The same with the pod as it was read. One that may not preempt evicts nobody."""
    said.pod = _pod_view(pod)
    if not said.pod.preempts:
        said.ways = [way for way in said.ways if way.way != "evict"]
    return said


def on_its_own(facts: PodFacts, quote: Quote | None, told: pod_details.Event | None) -> Explanation:
    """What the pod alone tells, to somebody who may read nothing else."""
    if facts.node and isinstance(facts.request, Request):
        owner = report.GPUSHARE if facts.running else report.KUBELET
        said = verdict.answer(facts, "runs", report.BOUND, f"has {facts.node}", owner=owner)
        said.has = _written(facts, facts.request)
        return said
    ours = condition.refusal_in(quote.message) if quote is not None else ""
    owner = report.GPUSHARE if ours else report.SCHEDULER
    code, message = (UNSCHEDULABLE, ours or NO_NODE_FOR_IT) if quote is not None else (UNKNOWN, NO_WORD)
    detail = (told.message or "").partition(" More: ")[0] if told is not None else ""
    return verdict.answer(facts, "refused", code, message, detail=detail, owner=owner)


def redacted(said: Explanation, namespace: str) -> Explanation:
    """Without the names of pods in other namespaces: for somebody who may not read them."""
    mine = f"{namespace}/"
    for way in said.ways:
        if way.pods is not None:
            way.count = way.count or len(way.pods)
            way.pods = [name for name in way.pods if name.startswith(mine)]
            way.holders = [holder for holder in way.holders or () if holder.pod.startswith(mine)]
    said.beside = [holder for holder in said.beside if holder.pod.startswith(mine)]
    said.before = [name if name.startswith(mine) else "" for name in said.before]
    return said


def exit_code(said: Iterable[Explanation]) -> int:
    """0: all of them run or fit; 1: one does not; 3: the little that could be read says nothing."""
    worst = 0
    for one in said:
        refused = 3 if one.code == UNKNOWN else 1
        worst = max(worst, 0 if one.verdict in ("runs", "fits") else refused)
    return worst


def _pod_view(pod: pod_details.Pod) -> PodView:
    meta, spec = pod.metadata, pod.spec
    phase = pod.status.phase or "Pending"
    preempts = spec.preemption_policy != "Never"
    deleting = meta.deletion_timestamp is not None
    return PodView(meta.namespace, meta.name, phase, spec.node_name or None, spec.priority or 0, preempts, deleting)


def _with_kubelet(said: Explanation, pod: pod_details.Pod) -> Explanation:
    if said.code == report.ENDED:
        said.detail = " ".join(filter(None, (pod.status.reason, pod.status.message)))
    if said.code != report.BOUND or said.detail:
        return said
    running = pod.status.phase == "Running"
    if not said.has:
        asked = (pod.metadata.annotations or {}).keys() & {names.ALLOCATION, names.ALIYUN_IDX, names.EXTENDER}
        said.detail = UNUSABLE if asked else UNASKED
    elif found := pod_details.not_started(pod):
        words = NOT_RUNNING if running else NOT_STARTED
        said.owner, said.detail = report.KUBELET, words.format(container=found[0], reason=found[1])
    elif not running:
        said.owner, said.detail = report.KUBELET, NOT_YET
    return said


def _written(facts: PodFacts, request: Request) -> list[Spot]:
    """The GPUs its own annotations name; nobody can say here whether the node has them."""
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
