"""What would make a refused pod fit: ways out, the cheapest first.

Pure. Each way out is tried on the ledger first: what would be free for the pod then, with all that is kept
for others? Only nodes count to which kube-scheduler may send the pod: freeing memory elsewhere does not help.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from gpushare.core.explain import views
from gpushare.core.explain.report import ROOM, Way
from gpushare.core.facts import policies
from gpushare.core.facts.model import NodeFacts, PodFacts, Refusal, Request
from gpushare.core.ledger.holding import EVERY_GPU_WHOLLY, Holding, State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room
from gpushare.core.scheduling import preempt

MOST_PODS = 16  # named in one way out
MOST_NODES = 3  # on which pods that could end are looked for
MOST_SPLIT = 16  # GPUs that a container's memory is tried on
_ABOUT_ONE_GPU = ("NoSingleGpu", "NoHealthyGpu", "KeptForOther", "TooLarge")
_SOON = ("JustRefused", "LikeUnderWay")  # there is room: the node takes it later

Refusing = Sequence[tuple[NodeState, Refusal]]


def ways(
    ledger: Ledger,
    pod: PodFacts,
    answers: Iterable[tuple[str, Refusal | None]],
    barred: Collection[str],
    budget: Budget,
) -> list[Way]:
    """`answers`: what each node says, the closest first. `barred`: nodes that kube-scheduler does not use for it."""
    request = pod.request
    assert isinstance(request, Request)
    open_to_it = [(ledger.node(name), r) for name, r in answers if r is not None and name not in barred]
    nodes = [(state, refusal) for state, refusal in open_to_it if state is not None]
    if not nodes:
        return []
    result: list[Way] = []
    if request.one_share and nodes[0][1].code in _ABOUT_ONE_GPU:
        # To ask otherwise people create another pod, and what was promised to this one is not promised to that one.
        anew = [(state.without_promises_to(pod.uid), refusal) for state, refusal in nodes]
        result += _shrink(pod, anew) + _split(pod, request, anew, budget)
    for state, refusal in nodes[:MOST_NODES]:
        result += _on_node(state, refusal, pod, budget)
    if not any(way.way == "evict" for way in result):  # kube-scheduler looks for victims on every node
        further = (_evict(state, pod, budget) for state, refusal in nodes[MOST_NODES:] if not refusal.forever)
        result += next(filter(None, further), [])
    enough = any(way.way in ("end", "wait") for way in result)  # whether it may evict others is not known here
    if request.one_share and (nodes[0][1].code == "NoHealthyGpu" or not enough):
        result += _free(request, nodes)
    return result


def _on_node(state: NodeState, refusal: Refusal, pod: PodFacts, budget: Budget) -> list[Way]:
    """What would help on one node."""
    if refusal.forever:
        return []
    healing = _heal(state, pod, budget) if refusal.code == "NoHealthyGpu" else []
    if preempt.would_fit(state, pod, (), budget):  # there is room: the node takes it in a moment
        return [*healing, Way("wait", node=state.name)]
    return [*healing, *_wait(state, pod, budget), *_end(state, pod, budget), *_evict(state, pod, budget)]


def _shrink(pod: PodFacts, nodes: Refusing) -> list[Way]:
    """The most it could ask: what the emptiest healthy GPU has free, or what the node allows one container. If it asks
    more than any GPU has: the same once all is free."""
    too_large = nodes[0][1].code == "TooLarge"
    if any(refusal.code in _SOON for _, refusal in nodes):
        return []  # a node has room for all of it
    units, best = 0, None
    for state, refusal in nodes:
        about_amount = refusal.code in (*_ABOUT_ONE_GPU, "OverLimit")
        room = state.room_for(pod) if about_amount else None
        if room is None or not room.rising:
            continue
        most = max([gpu.total for gpu in room.facts.gpus if gpu.healthy]) if too_large else room.rising[-1]
        most = min(most, room.facts.limit or most)
        if most > units:
            units, best = most, room
    if best is None:
        return []
    rows = zip(best.facts.gpus, best.free, strict=True)
    index = next(gpu.index for gpu, free in rows if gpu.healthy and (gpu.total if too_large else free) >= units)
    return [Way("shrink", node=best.facts.name, gpu=index, units=units)]


def _split(pod: PodFacts, request: Request, nodes: Refusing, budget: Budget) -> list[Way]:
    """Several GPUs instead of one. If it asks more than any GPU has, a node with enough GPUs will do, full or not."""
    share = request.shares[0]
    never = nodes[0][1].forever
    for gpus in range(2, MOST_SPLIT + 1):
        if share.units % gpus:
            continue
        question = Question(msgspec.structs.replace(request, shares=(msgspec.structs.replace(share, gpus=gpus),)))
        for state, _ in nodes:
            room = state.room_for(pod)
            if room is not None and never:
                room = Room.of(room.facts, [0] * len(room.free))
            if room is not None and question.refusal(room, budget) is None:
                return [Way("split", node=state.name, units=share.units // gpus, gpus=gpus)]
    return []


def _heal(state: NodeState, pod: PodFacts, budget: Budget) -> list[Way]:
    """The unhealthy GPUs of which one would be enough, if it came back; if none is, all of them."""
    facts = state.facts
    assert facts is not None
    unhealthy = [i for i, gpu in enumerate(facts.gpus) if not gpu.healthy]

    def enough(healed: Collection[int]) -> bool:
        return preempt.would_fit(state.imagined(_healed(facts, healed)), pod, (), budget)

    alone = [facts.gpus[i] for i in unhealthy if enough([i])]
    if alone:
        return [Way("heal", node=state.name, gpu=gpu.index, why=gpu.why or None) for gpu in alone]
    return [Way("heal", node=state.name)] if enough(unhealthy) else []


def _healed(facts: NodeFacts, positions: Collection[int]) -> NodeFacts:
    gpus = [msgspec.structs.replace(g, healthy=g.healthy or i in positions) for i, g in enumerate(facts.gpus)]
    return msgspec.structs.replace(facts, gpus=tuple(gpus))


def _wait(state: NodeState, pod: PodFacts, budget: Budget) -> list[Way]:
    """Pods that are being deleted already, and leave enough room."""
    going = {holding.pod.uid: holding for holding in state.holdings() if holding.pod.terminating}
    if not going or not preempt.would_fit(state, pod, going, budget):
        return []
    return [_with_pods("wait", state, list(going.values()), _gpu_of(state, pod, going))]


def _end(state: NodeState, pod: PodFacts, budget: Budget) -> list[Way]:
    """Pods of which any one would leave enough room by ending; and the GPU, if it is the same whichever ends."""
    enough, gpus = [], set(range(len(state.used)))
    for holding in state.holdings():
        uid = holding.pod.uid
        may_end = holding.state is State.BOUND and not holding.pod.terminating
        if may_end and preempt.would_fit(state, pod, {uid}, budget):
            enough.append(holding)
            gpus &= _able(state, pod, {uid})
    if not enough:
        return []
    room = state.room_for(pod)
    closest = max(gpus, key=lambda gpu: (room.free[gpu] if room is not None else 0, -gpu), default=None)
    return [_with_pods("end", state, enough, closest)]


def _evict(state: NodeState, pod: PodFacts, budget: Budget) -> list[Way]:
    """Pods of lower priority that kube-scheduler may evict."""
    mine = pod.priority
    lower = {h.pod.uid: h for h in state.holdings() if h.pod.priority < mine and h.state is State.BOUND}
    if not lower or not preempt.would_fit(state, pod, lower, budget):  # only if all of them do
        return []
    uids = preempt.victims(state, pod, (), budget)
    if not uids:
        return []
    return [_with_pods("evict", state, [lower[uid] for uid in uids], _gpu_of(state, pod, uids))]


def _free(request: Request, nodes: Refusing) -> list[Way]:
    """The least that has to come free on one GPU. Not where something is kept or nominated: who gets the freed memory
    depends there on the pod that frees it. Nor where unlocated whole GPUs count on every GPU: no amount is enough."""
    need, rows = request.shares[0].units, []
    for order, (state, refusal) in enumerate(nodes):
        if state.facts is None or refusal.code not in ROOM or state.promised or state.unlocated >= EVERY_GPU_WHOLLY:
            continue
        for gpu, used in zip(state.facts.gpus, state.effective().units, strict=True):
            if gpu.healthy and gpu.total >= need:
                rows.append((need + used - gpu.total, order, used - gpu.total, gpu.index, state.name))
    units, _, _, index, node = min(rows, default=(0, 0, 0, 0, ""))
    return [Way("free", node=node, gpu=index, units=units)] if rows else []


def _able(state: NodeState, pod: PodFacts, gone: Collection[str]) -> set[int]:
    """The GPUs that would have room for a request of one share if these pods were gone; none for other requests."""
    request, room = pod.request, state.room_for(pod, gone)
    if room is None or not isinstance(request, Request) or not request.one_share:
        return set()
    need = request.shares[0].units
    return {i for i, gpu in enumerate(room.facts.gpus) if gpu.healthy and room.free[i] >= need}


def _gpu_of(state: NodeState, pod: PodFacts, gone: Collection[str]) -> int | None:
    """The GPU that a request of one share would get if these pods were gone."""
    request, room = pod.request, state.room_for(pod, gone)
    if room is None or not isinstance(request, Request) or not request.one_share:
        return None
    places = gpu_choice.plan(request, room, policies.DEFAULT)
    return None if places is None else places[0][0]


def _with_pods(way: str, state: NodeState, holdings: Sequence[Holding], gpu: int | None) -> Way:
    if any(holding.charges is None for holding in holdings):
        gpu = None  # it is unlocated
    named = sorted(views.full_name(holding.pod) for holding in holdings)[:MOST_PODS]
    cheapest = sorted((views.holder(holding, state, gpu) for holding in holdings), key=lambda h: (h.units, h.pod))
    assert state.facts is not None
    return Way(
        way,
        node=state.name,
        gpu=None if gpu is None else state.facts.gpus[gpu].index,
        pods=named,
        count=len(holdings) if len(holdings) > len(named) else None,
        holders=cheapest[:MOST_PODS],
    )
