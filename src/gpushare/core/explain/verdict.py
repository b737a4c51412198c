"""Why a pod waits, where it would fit, and what would help: gpushare's part of an explanation.

Pure. In this order: every node is asked (`survey`); the closest node's answer is the verdict; each node is described
(`views`); for a refused pod the ways out are found (`ways_out`). A pod that has its node already is for `placed`.

The extender's `/explain` answers with it, and `gpushare why` adds kube-scheduler's and kubelet's part. All that is
decided here is GPU memory. `barred` are the nodes that kube-scheduler would not use for the pod: the caller knows them.
"""

from collections.abc import Collection, Sequence

from gpushare.core.explain import placed, report, scores, survey, views, ways_out
from gpushare.core.explain.report import Explanation, NodeView, Outcome, PolicyView, Way
from gpushare.core.facts import policies
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.facts.scoring import configmaps
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.facts.scoring.settings import NEUTRAL
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.scheduling import ranking
from gpushare.core.steps import Steps, finish

FITS = Outcome("fits", report.GPUSHARE, report.FITS, "fits")
NO_REQUEST = Outcome("fits", report.GPUSHARE, report.NO_REQUEST, "it asks no GPU memory")
KEPT_OFF = "{place} has room, but kube-scheduler keeps the pod off {nodes}"


def explain(
    ledger: Ledger,
    pod: PodFacts,
    *,
    barred: Collection[str] = (),
    among: Collection[str] | None = None,
    policy: str = policies.DEFAULT,
    node_points: NodePoints | None = None,
) -> Explanation:
    """gpushare's part of the explanation of a pod.

    The pod is taken as it is given. Admission may change a pod that does not exist yet, and decides with it which nodes
    take the pod. So before a pod exists, pass the pod as it will be admitted.

    `among`: the only nodes that are asked. `policy`: by which a node is chosen for a pod that names none.
    `node_points`: the points of nodes themselves, where these count.
    """
    return finish(explaining(ledger, pod, barred=barred, among=among, policy=policy, node_points=node_points))


def explaining(
    ledger: Ledger,
    pod: PodFacts,
    *,
    barred: Collection[str] = (),
    among: Collection[str] | None = None,
    policy: str = policies.DEFAULT,
    node_points: NodePoints | None = None,
    looks: int = cost.UNHURRIED_LOOKS,
) -> Steps[Explanation]:
    """The same in short steps, for a process with other work to do. `looks`: what one step may cost."""
    if pod.request is None:
        return views.gpushare_part(pod, NO_REQUEST)
    if pod.node or pod.finished:
        return placed.explain(ledger, pod, pod.request)
    if isinstance(pod.request, Refusal):
        return views.gpushare_part(pod, _refused("invalid", pod.request))
    policy = pod.request.policy or policy
    settings = ledger.scoring.settings
    chosen_by = PolicyView(policy, configmaps.settings_in_words(settings) if settings != NEUTRAL else {})
    answers = yield from survey.surveying(ledger, pod, among, looks)
    nodes, need = [], survey.largest_need(pod.request)
    for part in survey.parts(answers):
        states = [(state, refusal) for name, refusal in part if (state := ledger.node(name)) is not None]
        nodes += [views.node_view(state, need, pod, refusal) for state, refusal in states]
        yield
    answers = [(name, r) for name, r in answers if ledger.node(name) is not None]  # some may be gone since
    verdict, refusal = survey.verdict_of(answers)
    if refusal is not None:
        ways = ways_out.ways(ledger, pod, answers, barred, Budget(looks))
        full = [name for name, refusal in answers if refusal is not None and refusal.code == "KeptForOther"]
        kept, before = views.kept(ledger, pod), views.served_before(ledger, pod, full)
        return views.gpushare_part(
            pod, _refused(verdict, refusal), nodes=nodes, ways=ways, kept=kept, before=before, policy=chosen_by
        )
    open_to_it = [name for name, refusal in answers if refusal is None and name not in barred]
    if not open_to_it:
        fitting = [node for node in nodes if node.fits]
        return views.gpushare_part(pod, kept_off(fitting, one_gpu=pod.request.one_share), nodes=nodes, policy=chosen_by)
    ranked = ranking.best(ledger, pod.request, pod, open_to_it, policy, Budget(looks), node_points)
    best = [node for node, _ in ranked] or open_to_it[:1]
    return views.gpushare_part(
        pod,
        FITS,
        nodes=nodes,
        ways=[_where(ledger, pod, pod.request, best[0], policy)],
        policy=chosen_by,
        scores=scores.scores(ledger, pod, pod.request, best, policy, node_points),
    )


def kept_off(fitting: Sequence[NodeView], *, one_gpu: bool) -> Outcome:
    """The outcome for a pod that kube-scheduler keeps off every node with room for it. `one_gpu`: it needs one only."""
    first, names = fitting[0], [node.name for node in fitting]
    place = f"{first.name} GPU {first.gpus[0].index}" if one_gpu and first.gpus else first.name
    nodes = " and ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more nodes"
    return Outcome("refused", report.SCHEDULER, report.KEPT_OFF, KEPT_OFF.format(place=place, nodes=nodes))


def _refused(verdict: str, refusal: Refusal) -> Outcome:
    return Outcome(verdict, report.GPUSHARE, refusal.code, refusal.message, refusal.detail)


def _where(ledger: Ledger, pod: PodFacts, request: Request, node: str, policy: str) -> Way:
    """The GPUs that the extender would give the pod there."""
    state = ledger.node(node)
    room = state.room_for(pod) if state is not None else None
    order = ledger.order(node, pod, request, policy)
    places = gpu_choice.plan(request, room, policy, order=order) if room is not None else None
    if room is None or places is None:
        return Way("wait", node=node)
    gpus = room.facts.gpus
    by_container = {s.container: [gpus[gpu].index for gpu in at] for s, at in zip(request.shares, places, strict=True)}
    charges = gpu_choice.charges(request.shares, room.facts, places)
    return Way("wait", node=node, spots=views.spots(room, charges, by_container))
