"""Why a pod waits, where it would fit, and what would help: one object, for people and for programs.

Pure. The extender's `/explain` answers with it, and the events of `sentences` are cut from it. Keys are only ever
added. Whose "no" it is stays apart: everything here is GPU memory; `scheduler` is filled by those who ask
kube-scheduler.
"""

from collections.abc import Sequence

import msgspec

from gpushare.core import preempt
from gpushare.core.book import NodeState
from gpushare.core.choose import Room
from gpushare.core.fit import NEEDS_POLICY, NO_SHARED_GPU, PINS_BY_PLUGIN, Question
from gpushare.core.ledger import Ledger
from gpushare.core.model import Pin, PodFacts, Refusal, Request

VERSION = 1
NO_REQUEST = "it asks no GPU memory"
FITS = "fits"
VERDICTS = ("runs", "fits", "refused", "never", "invalid")  # from good to bad
MOST_PODS = 16  # named in one way out
MOST_WAYS_NODES = 3  # nodes that ways out are looked for on


class Said(msgspec.Struct):
    code: str
    message: str


class GpuView(msgspec.Struct):
    index: int
    total: int
    free: int
    short: int | None
    healthy: bool
    pods: int


class NodeView(msgspec.Struct):
    name: str
    fits: bool
    unit: str | None
    gpushare: Said | None
    scheduler: None
    gpus: list[GpuView]


class Way(msgspec.Struct, omit_defaults=True):
    way: str
    node: str | None = None
    gpu: int | None = None
    units: int | None = None
    gpus: int | None = None
    pods: list[str] | None = None


class PodView(msgspec.Struct):
    namespace: str
    name: str
    phase: str
    node: str | None
    priority: int


class ShareView(msgspec.Struct):
    container: str
    units: int
    gpus: int
    whole: bool


class RequestView(msgspec.Struct):
    unit: str | None
    shares: list[ShareView]


class Explanation(msgspec.Struct):
    version: int
    verdict: str  # one of VERDICTS
    owner: str  # gpushare, kubelet
    code: str
    message: str
    detail: str
    pod: PodView
    request: RequestView | None
    nodes: list[NodeView]
    ways: list[Way]
    scheduler: None


def explain(ledger: Ledger, pod: PodFacts) -> Explanation:
    """All there is to say about a pod, the closest node first.

    Before a pod exists no admission policy has had its say, so it may become one for either kind of node: the kind
    that does it more good is meant.
    """
    said = _explain(ledger, pod)
    if not pod.uid and isinstance(pod.claim, Request) and pod.claim.pin is Pin.PLUGIN:
        admitted = msgspec.structs.replace(pod.claim, pin=Pin.DIRECT)
        said = min(said, _explain(ledger, msgspec.structs.replace(pod, claim=admitted)), key=_how_bad)
    return said


def _how_bad(said: Explanation) -> tuple[int, bool]:
    return VERDICTS.index(said.verdict), said.code in (PINS_BY_PLUGIN.code, NEEDS_POLICY.code)


def _explain(ledger: Ledger, pod: PodFacts) -> Explanation:
    if not isinstance(pod.claim, Request):
        if pod.claim is None:
            return _answer(pod, "fits", "NoRequest", NO_REQUEST)
        return _answer(pod, "invalid", pod.claim.code, pod.claim.message, detail=pod.claim.detail)
    claim = pod.claim
    if pod.node or pod.finished:
        state = ledger.nodes.get(pod.node)
        views = [_view(state, claim, pod, None)] if state else []
        owner = "gpushare" if pod.running or pod.finished else "kubelet"
        where = _where(state, pod) if state else pod.node
        return _answer(pod, "runs", "Bound", f"has {where}", owner=owner, nodes=views)
    found = survey(ledger, pod)
    views = [_view(ledger.nodes[name], claim, pod, refused) for name, refused in found]
    verdict, first = judge(found)
    if first is None:
        return _answer(pod, "fits", "Fits", FITS, nodes=views, ways=[Way("wait", node=found[0][0])])
    ways = _ways(ledger, pod, found, verdict)
    return _answer(pod, verdict, first.code, first.message, nodes=views, ways=ways)


def survey(ledger: Ledger, pod: PodFacts) -> list[tuple[str, Refusal | None]]:
    """What each node with a GPU says to a pod, the closest first."""
    assert isinstance(pod.claim, Request)
    question = Question(pod.claim)
    need = largest_need(pod.claim)
    rows = []
    for name, state in ledger.nodes.items():
        if state.room is not None:
            refused = ledger.refusal(question, name, pod)
            short = need - (state.room.rising[-1] if state.room.rising else 0)
            never = refused is not None and refused.forever
            barred = never and question.off_limits(state.room.facts) is not None  # not close, however much is free
            rows.append(((refused is not None, never, barred, short, name), refused))
    rows.sort(key=lambda row: row[0])
    return [(key[-1], refused) for key, refused in rows]


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


def pods_on(state: NodeState, gpu: int) -> list[PodFacts]:
    """Who holds something on a GPU, the largest first."""
    there = []
    for holding in state.holdings.values():
        amount = sum(units for position, units in holding.charges or () if position == gpu)
        if amount:
            there.append((-amount, holding.pod.namespace, holding.pod.name, holding.pod))
    return [row[3] for row in sorted(there, key=lambda row: row[:3])]


def _view(state: NodeState, request: Request, pod: PodFacts, refused: Refusal | None) -> NodeView:
    room = state.room_for(pod)
    need = largest_need(request)
    gpus = [
        GpuView(
            index=gpu.index,
            total=gpu.total,
            free=room.free[i],
            short=max(need - room.free[i], 0) if need else None,
            healthy=gpu.healthy,
            pods=len(pods_on(state, i)),
        )
        for i, gpu in enumerate(state.facts.gpus if state.facts else ())
        if room is not None
    ]
    gpus.sort(key=lambda view: (not view.healthy, -view.free, view.index))
    said = Said(refused.code, refused.message) if refused else None
    return NodeView(state.name, refused is None, state.facts.unit if state.facts else None, said, None, gpus)


def _where(state: NodeState, pod: PodFacts) -> str:
    holding = state.holdings.get(pod.uid)
    if holding is None or holding.charges is None or state.facts is None:
        return state.name
    return f"{state.name} GPU " + " and GPU ".join(str(state.facts.gpus[gpu].index) for gpu, _ in holding.charges)


def _ways(ledger: Ledger, pod: PodFacts, found: Sequence[tuple[str, Refusal | None]], verdict: str) -> list[Way]:
    """Ways out, cheapest first."""
    assert isinstance(pod.claim, Request)
    one = pod.claim.one_share
    ways: list[Way] = []
    near = [(ledger.nodes[name], refused) for name, refused in found[:MOST_WAYS_NODES] if refused is not None]
    if one and near:
        ways += _shrink(ledger, pod, found)
    if one and verdict == "never":
        ways += _split(ledger, pod.claim)
    for state, refused in near:
        if refused.code == "NoHealthyGpu" and state.facts is not None:
            ways += [Way("heal", node=state.name, gpu=gpu.index) for gpu in state.facts.gpus if not gpu.healthy]
        if not refused.forever:
            ways += _end(state, pod) + _evict(state, pod)
    return ways


def _shrink(ledger: Ledger, pod: PodFacts, found: Sequence[tuple[str, Refusal | None]]) -> list[Way]:
    """The most it could ask: what the closest GPU has free or, if none is large enough, what the largest has."""
    name, first = found[0]
    assert first is not None
    if first.code == "TooLarge":
        sizes = [(room.largest, room) for n, r in found if r == first and (room := ledger.nodes[n].room)]
        most, room = max(sizes, key=lambda size: size[0])
        gpu = next(gpu for gpu in room.facts.gpus if gpu.total == most)
        return [Way("shrink", node=room.facts.name, gpu=gpu.index, units=most)]
    free = ledger.nodes[name].room_for(pod)
    if first.code not in ("NoSingleGpu", "NoHealthyGpu") or free is None or not free.rising or not free.rising[-1]:
        return []
    most = free.rising[-1]
    gpu = next(g for g, f in zip(free.facts.gpus, free.free, strict=True) if f == most and g.healthy)
    return [Way("shrink", node=name, gpu=gpu.index, units=most)]


def _split(ledger: Ledger, request: Request) -> list[Way]:
    """Several GPUs instead of one, where a node has enough large ones."""
    share = request.shares[0]
    for gpus in range(2, 17):
        if share.units % gpus:
            continue
        split = msgspec.structs.replace(request, shares=(msgspec.structs.replace(share, gpus=gpus),))
        question, each = Question(split), share.units // gpus
        for name, state in ledger.nodes.items():
            facts = state.facts
            if facts is None or sum(gpu.total >= each for gpu in facts.gpus) < gpus:
                continue
            if question.refusal(Room.of(facts, [0] * len(facts.gpus))) is None:
                return [Way("split", node=name, units=each, gpus=gpus)]
    return []


def _end(state: NodeState, pod: PodFacts) -> list[Way]:
    """Pods any one of which would make room by ending."""
    enough = [holding.pod for holding in state.holdings.values() if preempt.would_fit(state, pod, {holding.pod.uid})]
    named = sorted(f"{other.namespace}/{other.name}" for other in enough)[:MOST_PODS]
    return [Way("end", node=state.name, pods=named)] if named else []


def _evict(state: NodeState, pod: PodFacts) -> list[Way]:
    """Pods of lower priority that may have to give way."""
    uids = preempt.victims(state, pod, ())
    if not uids:
        return []
    pods = [state.holdings[uid].pod for uid in uids]
    return [Way("evict", node=state.name, pods=[f"{other.namespace}/{other.name}" for other in pods][:MOST_PODS])]


def _answer(
    pod: PodFacts,
    verdict: str,
    code: str,
    message: str,
    *,
    detail: str = "",
    owner: str = "gpushare",
    nodes: list[NodeView] | None = None,
    ways: list[Way] | None = None,
) -> Explanation:
    claim = pod.claim
    asked = None
    if isinstance(claim, Request):
        asked = RequestView(claim.unit, [ShareView(s.container, s.units, s.gpus, s.whole) for s in claim.shares])
    view = PodView(pod.namespace, pod.name, pod.phase, pod.node or None, pod.priority)
    return Explanation(VERSION, verdict, owner, code, message, detail, view, asked, nodes or [], ways or [], None)
