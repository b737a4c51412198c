"""Who holds what on which GPU: the one thing that changes.

It is a cache of what the API server knows, plus the decisions of the last moments that the API server does not know
yet. What one pod holds on one node is a *holding*, in one of three states. All three charge the same units on the same
GPUs. Methods of this class are in `code font`:

                `assume`            `reserve`            `confirm`, or `observe` shows it bound
    (nothing) ──────────▶ ASSUMED ──────────▶ RESERVED ──────────▶ BOUND
        ▲                    │                    │                   │
        └────────────────────┴────────────────────┴───────────────────┘

* (nothing) → RESERVED: `reserve` for another node than assumed, or without an assumption.
* (nothing), ASSUMED → BOUND: `observe` shows a pod that somebody else bound. A bound pod shown on another node moves.
* ASSUMED ends: `release` (the scheduler asks again), `expire` (after 30 s; 15 min with slow volumes or a nomination),
  `observe` (it is being deleted, or asks something else), `set_node` and `remove_node` (its GPU is gone, or the unit
  is another).
* RESERVED ends: `undo` (the binding was surely not written).
* BOUND ends: `unbind` or `relisted` (the cluster was restored from an older copy).
* All three end: `observe` (its containers have ended, or it asks nothing), `forget` (deleted).

Not a holding, but taken from others all the same: a *nomination* (share kept free for a pod that evicted others), what
is *kept* (for a pod that waited too long), an *old place* (what a moved pod held before, for 10 s). A *cool-down* keeps
one shape off a node that has room.

No clock: callers pass `now`. Not thread-safe: it lives on one event loop, and no method awaits.

What happens next: after each change a node gets a new `Room` (`core/placement/room.py`). If its free memory grew, for
example because a GPU is healthy again, its name is in `take_grown` until `core/scheduling/wakeups.py` takes it.
"""

from gpushare.core.facts import policies
from gpushare.core.facts.model import NodeFacts, Places, PodFacts, Refusal, Request
from gpushare.core.ledger.holding import Holding, State, assume_seconds, places_of
from gpushare.core.ledger.node_state import NodeState
from gpushare.core.ledger.observed import Observed, bound_holding
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.fit import NO_SHARED_GPU, Question

DECIDED = Refusal("Decided", "the pod is bound, or being bound")


class Ledger(Observed):
    """Here: decisions of our own. Its bases: what it contains, what it is asked, what the API server shows it."""

    def assume(self, pod: PodFacts, node: str, policy: str, now: float) -> Places | Refusal:
        """Count a pod on a node from now on, because we expect it to be bound there."""
        if self._is_decided(pod.uid):
            return DECIDED
        self.release(pod.uid)
        places = self._plan(pod, node, policy)
        if not isinstance(places, Refusal):
            self._now = now
            holding = self._decide(pod, node, places, State.ASSUMED)
            holding.until = now + assume_seconds(pod, node)
        return places

    def release(self, uid: str) -> None:
        """The pod is not expected there any more."""
        holding = self._holdings.get(uid)
        if holding is not None and holding.state is State.ASSUMED:
            self._remove(uid)

    def reserve(self, pod: PodFacts, node: str, policy: str) -> Places | Refusal:
        """A binding is about to be sent: what was assumed there, or else what fits now, is taken for it."""
        if self._is_decided(pod.uid):
            return DECIDED
        holding = self._holdings.get(pod.uid)
        if holding is not None and holding.node == node and holding.pod.request == pod.request:
            assumed = self._still(holding)
            if assumed is not None:
                holding.state, holding.decided_on, holding.places = State.RESERVED, self._nodes[node].facts, assumed
                del self._assumed[pod.uid]
                return assumed
        self.release(pod.uid)
        places = self._plan(pod, node, policy)
        if not isinstance(places, Refusal):
            self._decide(pod, node, places, State.RESERVED)
        return places

    def confirm(self, pod: PodFacts) -> None:
        """The API server took the binding. `pod` is the pod as it stands there now."""
        holding = self._holdings.get(pod.uid)
        if holding is not None and holding.state is State.RESERVED:
            self._end_nomination(pod.uid)
            self.keep_no_longer(pod.uid)
            record = self._nodes[holding.node]
            bound = bound_holding(pod, record)
            bound.since = holding.since
            if not self._shows(record, holding, bound):
                self._take(record, holding)
                self._put(record, bound)
                self._refresh(record)

    def unconfirm(self, uid: str) -> None:
        """A binding is known from a read, not from the watch: a list that began before may lack it."""
        holding = self.bound(uid)
        if holding is not None:
            holding.seen = False

    def undo(self, uid: str) -> None:
        """The binding was surely not made."""
        holding = self._holdings.get(uid)
        if holding is not None and holding.state is State.RESERVED:
            self._remove(uid)

    def is_crowded(self, uid: str) -> bool:
        """Whether a GPU of this pod is charged with more than it has: others were bound there without asking us."""
        holding = self._holdings.get(uid)
        facts = self._nodes[holding.node].facts if holding is not None else None
        if holding is None or facts is None:
            return False
        return self._is_over(self._nodes[holding.node], holding, facts)

    def expire(self, now: float) -> None:
        """End what ends by time: assumptions, old places of moved pods, cool-downs."""
        self._now = now
        for uid in [uid for uid, holding in self._assumed.items() if holding.until <= now]:
            self._remove(uid)
        for record in [self._nodes[name] for name in self._timed if name in self._nodes]:
            if record.expire(now):
                self._refresh(record, changed=True)
            if not record.ends_by_time:
                self._timed.discard(record.name)

    # What decisions are made of

    def _plan(self, pod: PodFacts, node: str, policy: str) -> Places | Refusal:
        assert isinstance(pod.request, Request)
        question = Question(pod.request)
        refused = self.refusal(question, node, pod)
        if refused is not None:
            return refused
        room = self._nodes[node].room_for(pod)
        if room is None:
            return NO_SHARED_GPU
        order = self.order(node, pod, pod.request, policy)
        # A long search may give up in one order and not in the other; that there is room was found by binpack.
        places = gpu_choice.plan(pod.request, room, policy, order=order)
        places = places or gpu_choice.plan(pod.request, room, policies.DEFAULT)
        return question.too_hard if places is None else places

    def _is_decided(self, uid: str) -> bool:
        holding = self._holdings.get(uid)
        return holding is not None and holding.state is not State.ASSUMED

    def _still(self, holding: Holding) -> Places | None:
        """The GPUs that were assumed, if they can still be had: the node may have changed, and others may have come."""
        record, request = self._nodes[holding.node], holding.pod.request
        facts, places = record.facts, holding.places
        if facts is None or not isinstance(request, Request):
            return None
        if facts is not holding.decided_on:
            found = places_of(holding.keys, facts)
            if found is None or Question(request).off_limits(facts) is not None:
                return None
            if not all(facts.gpus[gpu].healthy for chosen in found for gpu in chosen):
                return None
            places = found
        return None if self._is_over(record, holding, facts) else places

    def _is_over(self, record: NodeState, holding: Holding, facts: NodeFacts) -> bool:
        """Whether a GPU of this pod is charged with more than it has. Slots count only if the pod has some there."""
        units, slots = record.used, record.used_slots
        return any(
            units[gpu] + record.unlocated > facts.gpus[gpu].total or (taken > 0 and slots[gpu] > facts.slots)
            for gpu, _, taken in holding.charges or ()
        )

    def _decide(self, pod: PodFacts, node: str, places: Places, to: State) -> Holding:
        record = self._nodes[node]
        assert record.facts is not None
        assert isinstance(pod.request, Request)
        held = gpu_choice.charges(pod.request.shares, record.facts, places)
        holding = Holding(pod, node, to, held, record.facts)
        holding.since, holding.places = self._now, places
        self._put(record, holding)
        self._refresh(record)
        return holding
