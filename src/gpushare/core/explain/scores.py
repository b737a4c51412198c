"""What the best nodes score, point by point, for pods that are placed by a policy with points.

Pure. The sums are those by which nodes are ranked (`core/scheduling/scored.py`); here each says what it consists of.
"""

from collections.abc import Sequence

from gpushare.core.explain.report import GpuScore, NodeScore
from gpushare.core.facts.model import PodFacts, Request
from gpushare.core.facts.policies import POLICIES, Score
from gpushare.core.facts.scoring import adjusted
from gpushare.core.facts.scoring.load import Terms
from gpushare.core.facts.scoring.node_score import NodePoints
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import gpu_choice


def scores(
    ledger: Ledger, pod: PodFacts, request: Request, best: Sequence[str], policy: str, node_points: NodePoints | None
) -> list[NodeScore]:
    """Of these nodes, which are in the order in which they would be chosen. Empty if the policy gives no points."""
    score = POLICIES[policy].score
    states = [state for node in best if (state := ledger.node(node)) is not None and state.room is not None]
    return [_node(ledger, pod, request, state, policy, score, node_points) for state in states] if score else []


def _node(
    ledger: Ledger,
    pod: PodFacts,
    request: Request,
    state: NodeState,
    policy: str,
    score: Score,
    node_points: NodePoints | None,
) -> NodeScore:
    scoring, order = ledger.scoring, ledger.order(state.name, pod, request, policy)
    room = state.room_for(pod)
    assert order is not None
    assert room is not None
    places = gpu_choice.plan(request, room, policy, order=order) or ()
    chosen = {gpu for at in places for gpu in at}
    own: Terms = ()
    of_node, of_gpu = adjusted.weights(score, scoring.settings)
    if of_node and node_points is not None and pod.needs is not None:
        own = node_points.terms(pod.needs, state.name)
    points, many = order.worth(chosen), len(room.rising) > 1
    rows = zip(room.facts.gpus, state.loads(), order.points, strict=True)
    return NodeScore(
        state.name,
        adjusted.total(score, scoring.settings, sum([amount for _, amount in own]), points, many=many),
        points,
        [
            GpuScore(gpu.index, value, dict(adjusted.terms(score, load, scoring, single=request.one_gpu)), i in chosen)
            for i, (gpu, load, value) in enumerate(rows)
            if gpu.healthy
        ],
        gpu_weight=of_gpu,
        node_weight=of_node if own else 0.0,
        node=dict(own),
        extra=adjusted.MANY_GPUS if many and scoring.settings.prefers_many_gpus else 0,
    )
