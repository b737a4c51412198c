"""Pods, nodes and GPUs as an explanation shows them, made from the ledger.

Pure. `gpushare_part` is the one place where gpushare's part of an explanation is built.
"""

from collections.abc import Mapping, Sequence

from gpushare.core.explain.report import (
    VERSION,
    Explanation,
    GpuView,
    Holder,
    KeptView,
    NodeScore,
    NodeView,
    Outcome,
    PodView,
    PolicyView,
    Reason,
    RequestView,
    ShareView,
    Spot,
    Way,
)
from gpushare.core.facts.model import Charges, PodFacts, Refusal, Request
from gpushare.core.ledger.holding import EVERY_GPU_WHOLLY, Holding, State
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement.room import Room


def gpushare_part(
    pod: PodFacts,
    outcome: Outcome,
    *,
    nodes: Sequence[NodeView] = (),
    ways: Sequence[Way] = (),
    has: Sequence[Spot] = (),
    beside: Sequence[Holder] = (),
    kept: KeptView | None = None,
    before: Sequence[str] = (),
    policy: PolicyView | None = None,
    scores: Sequence[NodeScore] = (),
) -> Explanation:
    """What gpushare alone says about a pod: kube-scheduler's and kubelet's part is not in it."""
    request = None
    if isinstance(pod.request, Request):
        shares = [
            ShareView(s.container, s.units, s.gpus, s.kind.exclusive, s.kind.slots > 0, s.slot_bytes)
            for s in pod.request.shares
        ]
        request = RequestView(pod.request.unit, shares)
    return Explanation(
        VERSION,
        *outcome,
        pod=PodView(pod.namespace, pod.name, pod.phase, pod.node or None, pod.priority),
        request=request,
        nodes=list(nodes),
        ways=list(ways),
        scheduler=None,
        has=list(has),
        beside=list(beside),
        kept=kept,
        before=list(before),
        policy=policy,
        scores=list(scores),
    )


def node_view(state: NodeState, need: int, pod: PodFacts, refusal: Refusal | None) -> NodeView:
    """One node for one pod. `need`: the most units that the pod needs on one GPU."""
    gpus = _gpu_views(state, need, pod)
    reason = Reason(refusal.code, refusal.message) if refusal is not None else None
    lower = sum(h.state is State.BOUND and h.pod.priority < pod.priority for h in state.holdings())
    return NodeView(state.name, refusal is None, state.facts.unit if state.facts else None, reason, None, gpus, lower)


def _gpu_views(state: NodeState, need: int, pod: PodFacts) -> list[GpuView]:
    room = state.room_for(pod)
    if room is None:
        return []
    over, pods = overcommitted(state), _pods_by_gpu(state)
    gpus = [
        GpuView(
            index=gpu.index,
            total=gpu.total,
            free=room.free[i],
            short=max(need - room.free[i] + over[i], 0) if need else None,
            healthy=gpu.healthy,
            pods=pods[i],
            why=gpu.why,
            slots=room.facts.slots,
            free_slots=room.free_slots[i],
        )
        for i, gpu in enumerate(room.facts.gpus)
    ]
    gpus.sort(key=lambda view: (not view.healthy, -view.free, view.index))
    return gpus


def overcommitted(state: NodeState) -> list[int]:
    """By how much each GPU is more than full: that has to come free as well. Unlocated whole GPUs fill every GPU, but
    no more than that."""
    totals = [gpu.total for gpu in state.facts.gpus] if state.facts else []
    if state.unlocated >= EVERY_GPU_WHOLLY:
        return [0] * len(totals)
    return [max(used - total, 0) for used, total in zip(state.effective().units, totals, strict=True)]


def _pods_by_gpu(state: NodeState) -> list[int]:
    """How many pods hold something on each GPU."""
    counts = [0] * len(state.used)
    for holding in state.holdings():
        for charge in holding.charges or ():
            counts[charge.gpu] += charge.units > 0
    return counts


def spots(room: Room, charges: Charges, containers: Mapping[str, Sequence[int]]) -> list[Spot]:
    """What a pod has on each GPU. `containers`: the GPUs of each container, by index."""
    result = []
    for position, units, slots in charges:
        gpu = room.facts.gpus[position]
        users = [container for container, gpus in containers.items() if gpu.index in gpus]
        result.append(Spot(gpu.index, units, room.free[position], gpu.total, users, slots))
    return result


def holder(holding: Holding, state: NodeState, gpu: int | None) -> Holder:
    """A pod and what it holds on one GPU or, if `gpu` is None, on all GPUs of its node together."""
    charges = {charge.gpu: charge.units for charge in holding.charges or ()}
    units = charges.get(gpu, 0) if gpu is not None and charges else sum(charges.values())
    place = gpu if gpu is not None else next(iter(charges)) if len(charges) == 1 else None
    index = state.facts.gpus[place].index if place is not None and state.facts is not None else None
    return Holder(full_name(holding.pod), units if charges else holding.pod.spec_units, holding.pod.priority, index)


def full_name(pod: PodFacts) -> str:
    return f"{pod.namespace}/{pod.name}"
