"""Why a pod waits, where it would fit, and what would help: one object, for people and for programs.

Pure. The extender's `/explain` answers with it, and the events of `sentences` are cut from it. Keys are only ever
added. Whose "no" it is stays apart: everything here is GPU memory; `scheduler` is filled by those who ask
kube-scheduler.
"""

from collections.abc import Sequence

import msgspec

from gpushare.core import preempt
from gpushare.core.book import NodeState
from gpushare.core.fit import NO_SHARED_GPU, Question
from gpushare.core.ledger import Ledger
from gpushare.core.model import PodFacts, Refusal, Request

VERSION = 1
NO_REQUEST = "it asks no GPU memory"
FITS = "fits"
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
    verdict: str  # runs, fits, refused, never, invalid
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
    """All there is to say about a pod, the closest node first."""
    if not isinstance(pod.claim, Request):
        if pod.claim is None:
            return _answer(pod, "fits", "NoRequest", NO_REQUEST)
        return _answer(pod, "invalid", pod.claim.code, pod.claim.message, detail=pod.claim.detail)
    if pod.node or pod.finished:
        state = ledger.nodes.get(pod.node)
        views = [_view(state, pod.claim, pod, None)] if state else []
        owner = "gpushare" if pod.running or pod.finished else "kubelet"
        where = _where(state, pod) if state else pod.node
        return _answer(pod, "runs", "Bound", f"has {where}", owner=owner, nodes=views)
    found = survey(ledger, pod)
    views = [_view(ledger.nodes[name], pod.claim, pod, refused) for name, refused in found]
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
            rows.append(((refused is not None, refused is not None and refused.forever, short, name), refused))
    rows.sort(key=lambda row: row[0])
    return [(key[3], refused) for key, refused in rows]


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
    for state, refused in near:
        if one and refused.code in ("NoSingleGpu", "NoHealthyGpu", "TooLarge"):
            ways += _shrink(state, pod, refused)
    if one and verdict == "never":
        ways += _split(ledger, pod.claim)
    for state, refused in near:
        if refused.code == "NoHealthyGpu" and state.facts is not None:
            ways += [Way("heal", node=state.name, gpu=gpu.index) for gpu in state.facts.gpus if not gpu.healthy]
        if not refused.forever:
            ways += _end(state, pod) + _evict(state, pod)
    return ways


def _shrink(state: NodeState, pod: PodFacts, refused: Refusal) -> list[Way]:
    room = state.room_for(pod)
    if room is None or not room.rising:
        return []
    most = room.largest if refused.code == "TooLarge" else room.rising[-1]
    gpu = next((g for g, f in zip(room.facts.gpus, room.free, strict=True) if f == most and g.healthy), None)
    return [Way("shrink", node=state.name, gpu=gpu.index if gpu else None, units=most)] if most else []


def _split(ledger: Ledger, request: Request) -> list[Way]:
    """Several GPUs instead of one, where a node has enough large ones."""
    share = request.shares[0]
    for gpus in range(2, 17):
        for name, state in ledger.nodes.items():
            facts = state.facts
            if share.units % gpus or facts is None or facts.blocked is not None:
                continue
            if sum(gpu.total >= share.units // gpus for gpu in facts.gpus) >= gpus:
                return [Way("split", node=name, units=share.units // gpus, gpus=gpus)]
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
