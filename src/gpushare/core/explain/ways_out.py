"""What would make a refused pod fit: ways out, the cheapest first.

Pure. Only nodes are looked at that kube-scheduler would let the pod go to: freeing memory elsewhere is no help.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from gpushare.core.explain.report import Holder, Way
from gpushare.core.facts import policies
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.ledger.holding import Holding, State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room
from gpushare.core.scheduling import preempt

MOST_PODS = 16  # named in one way out
MOST_NODES = 3  # nodes that ways out are looked for on
MOST_SPLIT = 16  # GPUs that a container's memory is tried on
_ABOUT_ONE_GPU = ("NoSingleGpu", "NoHealthyGpu", "KeptForOther", "TooLarge")

Near = Sequence[tuple[NodeState, Refusal]]


def ways(
    ledger: Ledger,
    pod: PodFacts,
    found: Iterable[tuple[str, Refusal | None]],
    barred: Collection[str],
    budget: Budget,
) -> list[Way]:
    """`found`: what each node says, the closest first. `barred`: nodes kube-scheduler keeps the pod off."""
    assert isinstance(pod.request, Request)
    near = [
        (state, refused)
        for name, refused in found
        if refused is not None and name not in barred and (state := ledger.node(name)) is not None
    ]
    if not near:
        return []
    result: list[Way] = []
    if pod.request.one_share and near[0][1].code in _ABOUT_ONE_GPU:
        result += _shrink(pod, near) + _split(pod, pod.request, near, budget)
    for state, refused in near[:MOST_NODES]:
        if refused.code == "NoHealthyGpu":
            result += _heal(state, pod, pod.request, budget)
        if refused.forever:
            continue
        if preempt.would_fit(
            state, pod, (), budget
        ):  # there is room: the node only wants to be left alone for a moment
            result.append(Way("wait", node=state.name))
        else:
            result += _wait(state, pod, budget) + _end(state, pod, budget) + _evict(state, pod, budget)
    if not any(way.way == "evict" for way in result):  # kube-scheduler looks for victims on every node
        further = (_evict(state, pod, budget) for state, refused in near[MOST_NODES:] if not refused.forever)
        result += next(filter(None, further), [])
    return result


def _shrink(pod: PodFacts, near: Near) -> list[Way]:
    """The most it could ask: what the emptiest GPU has free or, if none is large enough, what the largest has."""
    first = near[0][1]
    sizes: list[tuple[int, Room]] = []
    if first.code == "TooLarge":
        sizes = [(state.room.largest, state.room) for state, refused in near if refused == first and state.room]
    else:
        rooms = [state.room_for(pod) for state, refused in near if refused.code in _ABOUT_ONE_GPU]
        sizes = [(room.rising[-1], room) for room in rooms if room is not None and room.rising]
    most, room = max(sizes, key=lambda size: size[0], default=(0, None))
    if room is None or not most:
        return []
    amounts = [gpu.total for gpu in room.facts.gpus] if first.code == "TooLarge" else room.free
    well = [i for i, amount in enumerate(amounts) if amount == most and room.facts.gpus[i].healthy]
    at = (well or [amounts.index(most)])[0]
    return [Way("shrink", node=room.facts.name, gpu=room.facts.gpus[at].index, units=most)]


def _split(pod: PodFacts, request: Request, near: Near, budget: Budget) -> list[Way]:
    """Several GPUs instead of one. For what fits no GPU a node that has enough large ones, full or not, will do."""
    share = request.shares[0]
    never = near[0][1].forever
    for gpus in range(2, MOST_SPLIT + 1):
        if share.units % gpus:
            continue
        question = Question(msgspec.structs.replace(request, shares=(msgspec.structs.replace(share, gpus=gpus),)))
        for state, _ in near:
            room = state.room_for(pod)
            if room is not None and never:
                room = Room.of(room.facts, [0] * len(room.free))
            if room is not None and question.refusal(room, budget) is None:
                return [Way("split", node=state.name, units=share.units // gpus, gpus=gpus)]
    return []


def _heal(state: NodeState, pod: PodFacts, request: Request, budget: Budget) -> list[Way]:
    """The sick GPUs any one of which would do if it came back or, if one is not enough, all of them."""
    room = state.room_for(pod)
    if room is None:
        return []
    facts, question, alone = room.facts, Question(request), []
    used = [gpu.total - free for gpu, free in zip(facts.gpus, room.free, strict=True)]
    for i, gpu in enumerate(facts.gpus):
        well = msgspec.structs.replace(gpu, healthy=True)
        healed = msgspec.structs.replace(facts, gpus=(*facts.gpus[:i], well, *facts.gpus[i + 1 :]))
        if not gpu.healthy and question.refusal(Room.of(healed, used), budget) is None:
            alone.append(Way("heal", node=state.name, gpu=gpu.index, why=gpu.why or None))
    return alone or [Way("heal", node=state.name)]


def _wait(state: NodeState, pod: PodFacts, budget: Budget) -> list[Way]:
    """Pods that are going already, and will leave room enough."""
    going = {holding.pod.uid: holding for holding in state.holdings() if holding.pod.terminating}
    if not going or not preempt.would_fit(state, pod, going, budget):
        return []
    return [_with_pods("wait", state, list(going.values()), _gpu_of(state, pod, going))]


def _end(state: NodeState, pod: PodFacts, budget: Budget) -> list[Way]:
    """Pods any one of which would make room by ending; and the GPU, if it is the same whoever ends."""
    enough, gpus = [], set(range(len(state.used)))
    for holding in state.holdings():
        if (
            holding.state is State.BOUND
            and not holding.pod.terminating
            and preempt.would_fit(state, pod, {holding.pod.uid}, budget)
        ):
            enough.append(holding)
            gpus &= _able(state, pod, {holding.pod.uid})
    if not enough:
        return []
    room = state.room_for(pod)
    closest = max(gpus, key=lambda gpu: (room.free[gpu] if room is not None else 0, -gpu), default=None)
    return [_with_pods("end", state, enough, closest)]


def _evict(state: NodeState, pod: PodFacts, budget: Budget) -> list[Way]:
    """Pods of lower priority that may have to give way."""
    lower = {h.pod.uid: h for h in state.holdings() if h.state is State.BOUND and h.pod.priority < pod.priority}
    if not lower or not preempt.would_fit(state, pod, lower, budget):  # only if all of them do
        return []
    uids = preempt.victims(state, pod, (), budget)
    if not uids:
        return []
    return [_with_pods("evict", state, [lower[uid] for uid in uids], _gpu_of(state, pod, uids))]


def _able(state: NodeState, pod: PodFacts, gone: Collection[str]) -> set[int]:
    """On which GPUs a request of one share would have room if these were gone; for other shapes it is no single one."""
    request, room = pod.request, state.room_for(pod, gone)
    if room is None or not isinstance(request, Request) or not request.one_share:
        return set()
    need = request.shares[0].units
    return {i for i, gpu in enumerate(room.facts.gpus) if gpu.healthy and room.free[i] >= need}


def _gpu_of(state: NodeState, pod: PodFacts, gone: Collection[str]) -> int | None:
    request, room = pod.request, state.room_for(pod, gone)
    if room is None or not isinstance(request, Request) or not request.one_share:
        return None
    places = gpu_choice.plan(request, room, policies.DEFAULT)
    return None if places is None else places[0][0]


def _with_pods(way: str, state: NodeState, holdings: Sequence[Holding], gpu: int | None) -> Way:
    if any(holding.charges is None for holding in holdings):
        gpu = None  # nobody knows on which GPU it is
    named = sorted(_full_name(holding.pod) for holding in holdings)[:MOST_PODS]
    cheapest = sorted((holder(holding, state, gpu) for holding in holdings), key=lambda h: (h.units, h.pod))
    assert state.facts is not None
    return Way(
        way,
        node=state.name,
        gpu=None if gpu is None else state.facts.gpus[gpu].index,
        pods=named,
        count=len(holdings) if len(holdings) > len(named) else None,
        holders=cheapest[:MOST_PODS],
    )


def holder(holding: Holding, state: NodeState, gpu: int | None) -> Holder:
    """A pod with what it holds on a GPU, or else on all of its node together."""
    charges = dict(holding.charges or ())
    units = charges.get(gpu, 0) if gpu is not None and charges else sum(charges.values())
    place = gpu if gpu is not None else next(iter(charges)) if len(charges) == 1 else None
    index = state.facts.gpus[place].index if place is not None and state.facts is not None else None
    return Holder(_full_name(holding.pod), units if charges else holding.pod.spec_units, holding.pod.priority, index)


def _full_name(pod: PodFacts) -> str:
    return f"{pod.namespace}/{pod.name}"
