"""The answer about one pod, built once from all the evidence: the only place where `why` makes an `Explanation`.

Pure. It always says whose "no" it is: `owner` names gpushare, kube-scheduler, kubelet or the API server, and each node
has a column for gpushare and one for kube-scheduler.
"""

import msgspec

from gpushare.core.explain import measured, report, verdict
from gpushare.core.explain.report import Check, Explanation, NodeView, Outcome, PodView, RequestView, UseView, Way
from gpushare.core.facts import names, vitals
from gpushare.core.facts.objects import FINISHED
from gpushare.core.placement import fit
from gpushare.view.usage import UNASKED, UNUSABLE
from gpushare.view.why import pod_details, scheduler_checks, stuck
from gpushare.view.why.evidence import Evidence, SchedulerPart

NOT_STARTED = "container {container} has not started: {reason}"
NOT_RUNNING = "container {container} is not running: {reason}"
NOT_YET = "kubelet has not started it yet"


def build(evidence: Evidence) -> Explanation:
    part, pod = evidence.gpushare, _pod_view(evidence.pod)
    nodes, outcome, ways = part.nodes, _own_outcome(part), part.ways
    if evidence.scheduler is not None:
        nodes = _nodes(part, evidence.scheduler)
        outcome, ways = _with_scheduler(part, evidence.scheduler)
    waits = evidence.now is not None and not _has_its_node(evidence.pod)
    if evidence.now is not None and not waits:
        outcome = _with_kubelet(outcome, part, evidence.pod)
    if evidence.places is not None:
        outcome, ways = verdict.FITS._replace(owner=outcome.owner, detail=outcome.detail), evidence.places
    uses = _uses(evidence)
    return Explanation(
        part.version,
        *outcome,
        pod=pod,
        request=part.request if evidence.scheduler is None else _request(part.request, nodes),
        nodes=nodes,
        ways=[way for way in ways if way.way != "evict" or pod.preempts],
        scheduler=evidence.quote if waits else part.scheduler,
        has=part.has,
        beside=part.beside,
        uses=uses,
        sampled_at=evidence.doing.sampled_at if uses and evidence.doing is not None else None,
        checks=_checks(evidence, outcome) if waits else part.checks,
        kept=part.kept,
        before=part.before,
        asks=part.asks,
        by_memory=part.by_memory,
        without_gpu=evidence.scheduler.without_gpu if evidence.scheduler is not None else part.without_gpu,
        kind=evidence.kind,
        replicas=evidence.replicas,
        admission=evidence.admission,
        otherwise=evidence.otherwise,
        policy=part.policy,
        scores=part.scores,
    )


def _pod_view(pod: pod_details.Pod) -> PodView:
    """The pod as the API server shows it, or as it stands in the file."""
    meta, spec = pod.metadata, pod.spec
    phase = pod.status.phase or "Pending"
    preempts = spec.preemption_policy != "Never"
    deleting = meta.deletion_timestamp is not None
    node, priority, started = spec.node_name or None, spec.priority or 0, pod.status.start_time
    return PodView(meta.namespace, meta.name, phase, node, priority, preempts, deleting, started)


def _has_its_node(pod: pod_details.Pod) -> bool:
    return bool(pod.spec.node_name) or pod.status.phase in FINISHED


def _own_outcome(part: Explanation) -> Outcome:
    return Outcome(part.verdict, part.owner, part.code, part.message, part.detail)


def _nodes(part: Explanation, scheduler: SchedulerPart) -> list[NodeView]:
    """Every node with both columns; those that share no GPU come last."""
    reasons = {name: scheduler_checks.reason(obstacles) for name, obstacles in scheduler.obstacles.items()}
    nodes = [*part.nodes, *scheduler.unshared]
    return [msgspec.structs.replace(node, scheduler=reasons.get(node.name)) for node in nodes]


def _with_scheduler(part: Explanation, scheduler: SchedulerPart) -> tuple[Outcome, list[Way]]:
    """gpushare's outcome and ways out, without the nodes that kube-scheduler does not use."""
    outcome, barred = _own_outcome(part), scheduler.barred
    ways = [way for way in part.ways if way.node not in barred]
    fitting = [node for node in part.nodes if node.fits]
    if outcome.code == report.FITS and not ways and fitting:
        free = [node.name for node in fitting if node.name not in barred]
        if free:
            ways = [Way("wait", node=free[0])]
        else:
            outcome = verdict.kept_off(
                fitting, one_gpu=part.request is not None and report.one_share(part.request.shares)
            )
    if outcome.code == report.KEPT_OFF:
        ways = scheduler_checks.tolerate(part.nodes, scheduler.obstacles)
    down = fit.PLUGIN_DOWN
    if outcome.code == fit.NO_SHARED_GPU.code and any(
        node.gpushare is not None and node.gpushare.code == down.code for node in (*part.nodes, *scheduler.unshared)
    ):
        outcome = outcome._replace(verdict="refused", code=down.code, message=down.message)
    return outcome, ways


def _with_kubelet(outcome: Outcome, part: Explanation, pod: pod_details.Pod) -> Outcome:
    """Why a pod that has its GPU does not run, or how it ended."""
    if outcome.code == report.ENDED:
        return outcome._replace(detail=" ".join(filter(None, (pod.status.reason, pod.status.message))))
    if outcome.code != report.BOUND or outcome.detail:
        return outcome
    running = pod.status.phase == "Running"
    if not (part.has or part.asks):
        annotated = (pod.metadata.annotations or {}).keys() & {names.ALLOCATION, names.ALIYUN_IDX, names.EXTENDER}
        return outcome._replace(detail=UNUSABLE if annotated else UNASKED)
    if stopped := pod_details.not_started(pod):
        sentence = NOT_RUNNING if running else NOT_STARTED
        detail = sentence.format(container=stopped[0], reason=stopped[1])
        return outcome._replace(owner=report.KUBELET, detail=detail)
    return outcome if running else outcome._replace(owner=report.KUBELET, detail=NOT_YET)


def _uses(evidence: Evidence) -> list[UseView]:
    """What the containers of this pod were measured to use. Another pod may have had its name: the uid tells."""
    status, uid = evidence.doing, evidence.pod.metadata.uid
    if status is None or evidence.now is None or not vitals.is_fresh(status, evidence.now):
        return []
    return [
        UseView(one.container, gpu.index, one.granted_mib or 0, one.used_mib, measured.over(one))
        for gpu in status.gpus or ()
        for one in gpu.containers
        if one.uid == uid and one.used_mib is not None
    ]


def _request(request: RequestView | None, nodes: list[NodeView]) -> RequestView | None:
    """With the unit of the nodes, if the pod names none."""
    if request is None or request.unit is not None:
        return request
    unit = next((node.unit for node in nodes if node.unit), None)
    return msgspec.structs.replace(request, unit=unit)


def _checks(evidence: Evidence, outcome: Outcome) -> list[Check]:
    if outcome.code == report.FITS and evidence.now is not None:
        return stuck.checks(evidence.pod, evidence.quote, evidence.now, asked=not evidence.gpushare.asks)
    return stuck.unready(evidence.pod)
