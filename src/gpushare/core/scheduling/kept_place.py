"""Which GPUs are kept for a pod that has waited too long: those where least must come free.

Pure. `patience` decides whose turn it is; here is where. What a search may cost is bounded.
"""

from collections.abc import Callable, Collection, Mapping
from heapq import nsmallest
from typing import NamedTuple

from gpushare.core.facts import names, policies
from gpushare.core.facts.model import Charges, NodeFacts, Places, PodFacts, Request, Role, Unit
from gpushare.core.ledger.holding import Kept
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.placement import cost, gpu_choice
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room, Taken
from gpushare.core.scheduling.reach import ANYWHERE, Reach

MOST_NODES = 64  # looked at for one pod, the closest first


class Place(NamedTuple):
    """Where least must come free for a pod. The fields are in the order of comparison: the best is the smallest."""

    tried: bool
    short: int
    node: str
    keys: tuple[tuple[str, ...], ...]


class Missing(NamedTuple):
    """What must still come free on certain GPUs."""

    units: int
    slots: int

    @property
    def amount(self) -> int:
        """One number to compare by, 0 if nothing is missing."""
        return self.units + self.slots


def missing(ledger: Ledger, kept: Kept, reach: Reach = ANYWHERE) -> Missing | None:
    """What must still come free on the GPUs kept for a pod; None if it can no longer be placed there."""
    state, request = ledger.node(kept.node), kept.pod.request
    if state is None or state.facts is None or not isinstance(request, Request):
        return None
    facts, charges = state.facts, kept.charges(state.facts)
    if charges is None or Question(request).off_limits(facts) is not None or not reach.open_to(kept.pod, kept.node):
        return None
    if any(
        not facts.gpus[gpu].healthy or units > facts.gpus[gpu].total or slots > facts.slots
        for gpu, units, slots in charges
    ):
        return None
    return _short(facts, charges, state.taken_for(kept.pod, facts))


def closest(
    ledger: Ledger, pod: PodFacts, nodes: Collection[str] | None, tried: Collection[str], budget: Budget
) -> Place | None:
    """Where least must come free for a pod; None if it could be placed nowhere, whatever came free. Nodes that were
    tried before come last."""
    assert isinstance(pod.request, Request)
    question, need, near = Question(pod.request), _most_on_one_gpu(pod.request), []
    able = _ability(pod.request, need)
    for name in ledger.node_names() if nodes is None else nodes:
        state = ledger.node(name)
        room = state.room if state is not None else None
        if state is not None and room is not None and able(room) and question.off_limits(room.facts) is None:
            largest = room.rising[-1]
            least = max(need[room.facts.unit] - largest, 0)  # is missing, or more
            near.append((name in tried, least, bool(state.promised), name))  # where GPUs are promised, more is missing
    best: Place | None = None
    for was_tried, least, _, name in nsmallest(MOST_NODES, near):
        if budget.left <= 0 or (best is not None and best[:2] <= (was_tried, least)):
            break
        state = ledger.node(name)
        gpus = _on(state, pod, pod.request, budget) if state is not None else None
        if gpus is not None:
            place = Place(was_tried, gpus[0], name, gpus[1])
            best = place if best is None else min(best, place)
    return best


def _most_on_one_gpu(request: Request) -> dict[Unit, int]:
    """By unit of the node, the most units that one container wants on one GPU; 0 if that depends on the GPU."""
    return {unit: max(share.each_in(unit) for share in request.shares) for unit in names.UNITS}


def _ability(request: Request, need: Mapping[Unit, int]) -> Callable[[Room], bool]:
    """Whether a node might ever take it, by the sizes of its GPUs alone. There are too many nodes for more."""
    gpus = max(share.gpus for share in request.shares)
    stays = [share for share in request.shares if share.role is not Role.INIT]
    gpus, units = max(gpus, sum(s.gpus for s in stays if s.kind.exclusive)), sum(s.units for s in stays)

    def able(room: Room) -> bool:
        facts, largest = room.facts, room.largest
        enough = units <= largest or units <= facts.capacity  # the latter is a sum over all GPUs
        return enough and need[facts.unit] <= largest and gpus <= len(room.rising)

    return able


def _on(
    state: NodeState, pod: PodFacts, request: Request, budget: Budget
) -> tuple[int, tuple[tuple[str, ...], ...]] | None:
    """How much must come free on a node, and on which GPUs. GPUs are thought of as empty one after the other, those
    first that need least, until the pod fits: exact for one container, close to it for several."""
    facts = state.facts
    assert facts is not None
    taken = state.taken_for(pod, facts)
    held = state.effective()
    exclusive = any(share.kind.exclusive for share in request.shares)
    healthy = [i for i, gpu in enumerate(facts.gpus) if gpu.healthy]
    healthy.sort(key=lambda i: (taken.units[i] if exclusive else taken.units[i] - facts.gpus[i].total, i))
    then = Taken(list(taken.units), list(taken.slots))
    for emptied in (None, *healthy):
        if emptied is not None:  # what is promised to others stays
            then.units[emptied] -= held.units[emptied]
            then.slots[emptied] -= held.slots[emptied]
        budget.left -= 4 * cost.NODE_LOOKS
        places = gpu_choice.plan(request, Room.of(facts, then.units, then.slots), policies.DEFAULT, budget)
        if places is not None:
            charges = gpu_choice.charges(request.shares, facts, places)
            return _short(facts, charges, taken).amount, _keys(facts, places)
    return None


def _short(facts: NodeFacts, charges: Charges, taken: Taken) -> Missing:
    units = sum(max(c.units - (facts.gpus[c.gpu].total - taken.units[c.gpu]), 0) for c in charges)
    return Missing(units, sum(max(c.slots - max(facts.slots - taken.slots[c.gpu], 0), 0) for c in charges))


def _keys(facts: NodeFacts, places: Places) -> tuple[tuple[str, ...], ...]:
    return tuple([tuple([facts.gpus[gpu].key for gpu in chosen]) for chosen in places])
