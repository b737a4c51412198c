"""Why a pod waits, where it would fit, and what would help.

Pure. The extender's `/explain` answers with it, `gpushare why` shows it, and the events of `sentences` are cut from it.
Whose "no" it is stays apart: everything decided here is GPU memory. What kube-scheduler keeps to itself comes in as
`barred`, the nodes it would not send the pod to, from those who look at that; without it, it is not looked at.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from gpushare.core.explain import inspected, kept_view, report, ways_out
from gpushare.core.explain.report import (
    Explanation,
    GpuView,
    Holder,
    NodeView,
    PodView,
    RequestView,
    Said,
    ShareView,
    Spot,
    Way,
)
from gpushare.core.facts import policies
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.ledger.holding import EVERY_GPU_WHOLLY, Holding, State
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import NO_SHARED_GPU, Question
from gpushare.core.placement.room import Room
from gpushare.core.scheduling import ranking
from gpushare.core.steps import Steps, finish

VERSION = report.VERSION
NO_REQUEST = "it asks no GPU memory"
FITS = "fits"
ENDED = "has ended ({phase})"
STEP_NODES = 200  # looked at in one step: a few milliseconds

T = TypeVar("T")
KEPT_OFF = "{place} has room, but kube-scheduler keeps the pod off {nodes}"


def explain(
    ledger: Ledger,
    pod: PodFacts,
    *,
    barred: Collection[str] = (),
    among: Collection[str] | None = None,
    policy: str = policies.DEFAULT,
) -> Explanation:
    """All there is to say about a pod, the closest node first.

    The pod is judged as it is given. What admission makes of one that does not exist yet decides which nodes take it,
    and only the API server knows that: whoever asks before, asks with the pod as it will be admitted.

    `among`: the only nodes that are looked at. `policy`: by which a node is chosen for a pod that names none.
    """
    return finish(explaining(ledger, pod, barred=barred, among=among, policy=policy))


def explaining(
    ledger: Ledger,
    pod: PodFacts,
    *,
    barred: Collection[str] = (),
    among: Collection[str] | None = None,
    policy: str = policies.DEFAULT,
    looks: int = cost.UNHURRIED_LOOKS,
) -> Steps[Explanation]:
    """The same in short steps, for those who have other things to do between them. `looks`: what one may cost."""
    if pod.request is None:
        return answer(pod, "fits", report.NO_REQUEST, NO_REQUEST)
    if pod.node or pod.finished:
        return _bound(ledger, pod, pod.request)
    if isinstance(pod.request, Refusal):
        return answer(pod, "invalid", pod.request.code, pod.request.message, detail=pod.request.detail)
    found = yield from surveying(ledger, pod, among, looks)
    views, need = [], largest_need(pod.request)
    for part in _parts(found):
        there = [(state, refused) for name, refused in part if (state := ledger.node(name)) is not None]
        views += [_view(state, need, pod, refused) for state, refused in there]
        yield
    found = [
        (name, refused) for name, refused in found if ledger.node(name) is not None
    ]  # some may have gone meanwhile
    verdict, first = judge(found)
    if first is not None:
        out = ways_out.ways(ledger, pod, found, barred, Budget(looks))
        said = answer(pod, verdict, first.code, first.message, nodes=views, ways=out)
        said.kept = kept_view.view(ledger, pod)
        full = [name for name, refused in found if refused is not None and refused.code == "KeptForOther"]
        said.before = kept_view.served_before(ledger, pod, full)
        return said
    open_to_it = [name for name, refused in found if refused is None and name not in barred]
    best = [_wait(ledger, pod, pod.request, open_to_it, policy)] if open_to_it else []
    said = answer(pod, "fits", report.FITS, FITS, nodes=views, ways=best)
    return said if open_to_it else kept_off(said)


def kept_off(said: Explanation) -> Explanation:
    """The same for a pod that kube-scheduler keeps off every node that has room for it."""
    fitting = [view for view in said.nodes if view.fits]
    asked, first = said.request, fitting[0]
    one = asked is not None and len(asked.shares) == 1 and asked.shares[0].gpus == 1 and not asked.shares[0].whole
    place = f"{first.name} GPU {first.gpus[0].index}" if one and first.gpus else first.name
    message = KEPT_OFF.format(place=place, nodes=_names([view.name for view in fitting]))
    changes = {"owner": report.SCHEDULER, "code": report.KEPT_OFF, "message": message}
    return msgspec.structs.replace(said, verdict="refused", ways=[], **changes)


def _bound(ledger: Ledger, pod: PodFacts, request: Request | Refusal) -> Explanation:
    if pod.finished:
        return answer(pod, "runs", report.ENDED, ENDED.format(phase=pod.phase))
    state = ledger.node(pod.node)
    owner = report.GPUSHARE if pod.running else report.KUBELET
    if state is None or isinstance(request, Refusal):
        why = request.message if isinstance(request, Refusal) else ""
        return answer(pod, "runs", report.BOUND, f"has {pod.node}", owner=owner, detail=why)
    views, where = [_view(state, largest_need(request), pod, None)], _where(state, pod)
    said = answer(pod, "runs", report.BOUND, f"has {where}", owner=owner, nodes=views)
    holding = state.holding(pod.uid)
    if holding is not None and holding.charges is not None and state.room is not None:
        gpus = inspected.gpus_of(pod, state.room.facts) if holding.state is State.BOUND else {}
        said.has = _spots(state.room, holding.charges, gpus)
        said.beside = [other for gpu, _ in holding.charges for other in _others(state, gpu, holding)]
    return said


def survey(ledger: Ledger, pod: PodFacts, among: Collection[str] | None = None) -> list[tuple[str, Refusal | None]]:
    """What each node with a GPU says to a pod, the closest first."""
    return finish(surveying(ledger, pod, among, cost.UNHURRIED_LOOKS))


def surveying(
    ledger: Ledger, pod: PodFacts, among: Collection[str] | None, looks: int
) -> Steps[list[tuple[str, Refusal | None]]]:
    """The same in short steps."""
    rows: list[Row] = []
    for part in _parts(list(ledger.node_names()) if among is None else list(among)):
        rows += _closeness(ledger, pod, part, Budget(looks))
        yield
    rows.sort(key=lambda row: row[0])
    return [(key[-1], refused) for key, refused in rows if ledger.node(key[-1]) is not None]


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), STEP_NODES):
        yield items[start : start + STEP_NODES]


Row = tuple[tuple[bool, bool, bool, bool, bool, int, str], Refusal | None]


def _closeness(ledger: Ledger, pod: PodFacts, among: Collection[str], budget: Budget) -> list[Row]:
    """How close each of the named nodes is to taking a pod: one that only a sick GPU keeps from fitting first, then by
    how much is missing."""
    assert isinstance(pod.request, Request)
    question, need, rows = Question(pod.request), largest_need(pod.request), []
    states = {name: ledger.node(name) for name in among}
    rooms = {name: state.room for name, state in states.items() if state is not None and state.room is not None}
    for name, refused in ledger.judged(pod.request, pod, rooms, budget):
        room = rooms[name]
        short = need - (room.rising[-1] if room.rising else 0)
        never = refused is not None and refused.forever
        off_limits = never and question.off_limits(room.facts) is not None  # not close, however much is free
        too_small = never and refused is not None and refused.code not in report.ROOM  # for one container alone
        full = refused is None or refused.code != "NoHealthyGpu"
        rows.append(((refused is not None, never, off_limits, too_small, full, short, name), refused))
    return rows


def judge(found: Sequence[tuple[str, Refusal | None]]) -> tuple[str, Refusal | None]:
    """The verdict, and the refusal that stands for all of them: the closest node's."""
    if not found:
        return "never", NO_SHARED_GPU
    first = found[0][1]
    if first is None:
        return "fits", None
    return "never" if first.forever else "refused", first


def largest_need(request: Request) -> int:
    """The most units this request wants on one GPU; 0 if it wants whole ones only."""
    return max(share.each for share in request.shares)


def _holding(state: NodeState, gpu: int) -> list[Holding]:
    """Who holds something on a GPU, the largest first."""
    there = []
    for holding in state.holdings():
        amount = sum(units for position, units in holding.charges or () if position == gpu)
        if amount:
            there.append((-amount, holding.pod.namespace, holding.pod.name, holding))
    return [row[3] for row in sorted(there, key=lambda row: row[:3])]


def _pods_by_gpu(state: NodeState) -> list[int]:
    """How many pods hold something on each GPU."""
    counts = [0] * len(state.used)
    for holding in state.holdings():
        for gpu, units in holding.charges or ():
            counts[gpu] += units > 0
    return counts


def _others(state: NodeState, gpu: int, holding: Holding) -> list[Holder]:
    return [ways_out.holder(other, state, gpu) for other in _holding(state, gpu) if other is not holding]


def _view(state: NodeState, need: int, pod: PodFacts, refused: Refusal | None) -> NodeView:
    room = state.room_for(pod)
    over, pods = _over(state), _pods_by_gpu(state)
    gpus = [
        GpuView(
            index=gpu.index,
            total=gpu.total,
            free=room.free[i],
            short=max(need - room.free[i] + over[i], 0) if need else None,
            healthy=gpu.healthy,
            pods=pods[i],
            why=gpu.why,
        )
        for i, gpu in enumerate(state.facts.gpus if state.facts else ())
        if room is not None
    ]
    gpus.sort(key=lambda view: (not view.healthy, -view.free, view.index))
    said = Said(refused.code, refused.message) if refused else None
    lower = sum(h.state is State.BOUND and h.pod.priority < pod.priority for h in state.holdings())
    return NodeView(state.name, refused is None, state.facts.unit if state.facts else None, said, None, gpus, lower)


def _over(state: NodeState) -> list[int]:
    """By how much each GPU is more than full: that has to come free as well. Whole GPUs of which nobody knows which
    they are fill all of them, but no more."""
    totals = [gpu.total for gpu in state.facts.gpus] if state.facts else []
    if state.unlocated >= EVERY_GPU_WHOLLY:
        return [0] * len(totals)
    return [max(used - total, 0) for used, total in zip(state.effective(), totals, strict=True)]


def _wait(ledger: Ledger, pod: PodFacts, request: Request, among: Sequence[str], policy: str) -> Way:
    """Where the pod would be sent: nothing is in its way."""
    policy = request.policy or policy
    best = ranking.best(ledger, request, pod, among, policy)
    node = best[0][0] if best else among[0]
    state = ledger.node(node)
    room = state.room_for(pod) if state is not None else None
    places = gpu_choice.plan(request, room, policy) if room is not None else None
    if room is None or places is None:
        return Way("wait", node=node)
    gpus = room.facts.gpus
    seen = {share.container: [gpus[gpu].index for gpu in at] for share, at in zip(request.shares, places, strict=True)}
    return Way("wait", node=node, spots=_spots(room, gpu_choice.charges(request.shares, gpus, places), seen))


def _spots(room: Room, charges: Sequence[tuple[int, int]], seen: Mapping[str, Sequence[int]]) -> list[Spot]:
    """`seen`: the GPUs of each container, by index."""
    spots = []
    for position, units in charges:
        gpu = room.facts.gpus[position]
        containers = [container for container, gpus in seen.items() if gpu.index in gpus]
        spots.append(Spot(gpu.index, units, room.free[position], gpu.total, containers))
    return spots


def _where(state: NodeState, pod: PodFacts) -> str:
    holding = state.holding(pod.uid)
    if holding is None or holding.charges is None or state.facts is None:
        return state.name
    return f"{state.name} GPU " + " and GPU ".join(str(state.facts.gpus[gpu].index) for gpu, _ in holding.charges)


def _names(nodes: Sequence[str]) -> str:
    if len(nodes) <= 2:
        return " and ".join(nodes)
    return f"{nodes[0]} and {len(nodes) - 1} more nodes"


def answer(
    pod: PodFacts,
    verdict: str,
    code: str,
    message: str,
    *,
    detail: str = "",
    owner: str = report.GPUSHARE,
    nodes: list[NodeView] | None = None,
    ways: list[Way] | None = None,
) -> Explanation:
    """An explanation with what is always in it."""
    request = pod.request
    asked = None
    if isinstance(request, Request):
        asked = RequestView(
            request.unit, [ShareView(s.container, s.units, s.gpus, s.kind.exclusive) for s in request.shares]
        )
    view = PodView(pod.namespace, pod.name, pod.phase, pod.node or None, pod.priority)
    return Explanation(VERSION, verdict, owner, code, message, detail, view, asked, nodes or [], ways or [], None)
