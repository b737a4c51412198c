"""A pod that has its node already, or has ended: where it is, and who else is there.

Pure. Nothing is decided here: the ledger knows what the pod holds.
"""

from gpushare.core.explain import inspected, report, survey, views
from gpushare.core.explain.report import Explanation, Holder, Outcome
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.ledger.holding import Holding, State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState

HAS_ENDED = "has ended ({phase})"


def explain(ledger: Ledger, pod: PodFacts, request: Request | Refusal) -> Explanation:
    if pod.finished:
        return views.gpushare_part(
            pod, Outcome("runs", report.GPUSHARE, report.ENDED, HAS_ENDED.format(phase=pod.phase))
        )
    state = ledger.node(pod.node)
    if state is None or isinstance(request, Refusal):
        detail = request.message if isinstance(request, Refusal) else ""
        return views.gpushare_part(pod, _outcome(pod, pod.node, detail))
    node = views.node_view(state, survey.largest_need(request), pod, None)
    holding = state.holding(pod.uid)
    if holding is None or holding.charges is None or state.room is None:
        return views.gpushare_part(pod, _outcome(pod, state.name), nodes=[node])
    facts = state.room.facts
    gpus = " and GPU ".join(str(facts.gpus[gpu].index) for gpu, _, _ in holding.charges)
    containers = inspected.gpus_of(pod, facts) if holding.state is State.BOUND else {}
    return views.gpushare_part(
        pod,
        _outcome(pod, f"{state.name} GPU {gpus}"),
        nodes=[node],
        has=views.spots(state.room, holding.charges, containers),
        beside=[other for gpu, _, _ in holding.charges for other in _others(state, gpu, holding)],
    )


def _outcome(pod: PodFacts, place: str, detail: str = "") -> Outcome:
    owner = report.GPUSHARE if pod.running else report.KUBELET
    return Outcome("runs", owner, report.BOUND, f"has {place}", detail)


def _others(state: NodeState, gpu: int, mine: Holding) -> list[Holder]:
    """The other pods on a GPU, the largest first."""
    rows = []
    for holding in state.holdings():
        amount = sum(charge.units for charge in holding.charges or () if charge.gpu == gpu)
        if amount and holding is not mine:
            rows.append((-amount, holding.pod.namespace, holding.pod.name, holding))
    return [views.holder(row[3], state, gpu) for row in sorted(rows, key=lambda row: row[:3])]
