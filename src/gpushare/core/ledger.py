"""Who holds what on which GPU: the one thing that changes.

Everything here is a cache of what the API server knows, plus the decisions of the last moments that it does not know
yet: *holds* (the node we expect a pod to go to), *reservations* (a binding is under way) and *pledges* (a pod that
evicted others waits for what they leave). Every change goes through `_put` and `_take`, which move exactly the same
units, so that nothing leaks; what is free is never below zero, so that nothing underflows.

No clock: callers pass `now`. Not thread-safe: it lives on one event loop, and no method awaits.
"""

from collections.abc import Sequence, Set

from gpushare.core import choose, codec
from gpushare.core.book import Ghost, Holding, NodeState, Rest, State, units_unknown, waits_for_kubelet
from gpushare.core.choose import Room
from gpushare.core.codec import Charges
from gpushare.core.fit import JUST_REFUSED, NO_SHARED_GPU, Question
from gpushare.core.model import NodeFacts, Pin, Places, PodFacts, Refusal, Request, Role, Shape, Unit
from gpushare.core.shapes import Answers, Shapes

HOLD_SECONDS = 30.0
SLOW_HOLD_SECONDS = 900.0  # while volumes are bound: kube-scheduler gives them 600 s
MOVE_SECONDS = 10.0  # a moved pod counts on both GPUs: two patches of a swap do not arrive together
REST_SECONDS = (10.0, 300.0)  # first and longest rest of a node that refused a shape
SUM_BITS = 32  # the free units of a whole node fit below that
IMPOSSIBLE = 1 << 62
REFUSED_BY_KUBELET = "UnexpectedAdmissionError"
DECIDED = Refusal("Decided", "the pod is bound, or being bound")


Lane = tuple[Pin | None, Unit | None]


class Ledger:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.holdings: dict[str, Holding] = {}
        self.pledged: dict[str, str] = {}  # uid -> node
        self.grown: set[str] = set()  # nodes where something came free since somebody last cleared this
        self.shapes = Shapes()
        # What scoring reads, one number per well GPU: its free units before those of its node; then IMPOSSIBLE.
        self.spots: dict[Lane, dict[str, tuple[int, ...]]] = {}
        self._largest: dict[Lane, dict[str, int]] = {}  # largest free GPU of the nodes that may serve such pods
        self.special: set[str] = set()  # nodes whose answer depends on more than what is free
        self._held: dict[str, Holding] = {}  # those that end by time
        self._timed: set[str] = set()  # nodes with something else that ends by time

    # Nodes

    def set_node(self, facts: NodeFacts) -> None:
        """A node appeared or changed. All that is held there is read again: indices and sizes may have shifted."""
        state = self.nodes.get(facts.name)
        if state is None:
            state = self.nodes[facts.name] = NodeState(facts.name)
        if state.facts != facts:
            self._reread(state, facts)

    def remove_node(self, name: str) -> None:
        """A node is gone, or shares no GPU any more. Its pods are remembered until they are gone themselves."""
        state = self.nodes.get(name)
        if state is not None and state.facts is not None:
            self._reread(state, None)
            self._drop_if_empty(state)

    def _reread(self, state: NodeState, facts: NodeFacts | None) -> None:
        holdings = list(state.holdings.values())
        before, state.facts = state.facts, facts
        if before is None or facts is None or _published(before) != _published(facts):
            state.rests.clear()
        state.used = [0] * len(facts.gpus) if facts else []
        state.vague = state.split = 0
        state.holdings.clear()
        for ghost in state.ghosts.values():
            self._haunt(state, ghost, 1)
        for holding in holdings:
            holding.charges = self._charges(holding, facts) if facts else None
            holding.vague = 0 if holding.charges is not None else units_unknown(holding.pod)
            if holding.charges is None and holding.state is State.HELD:
                del self.holdings[holding.pod.uid], self._held[holding.pod.uid]  # its GPU is gone; nothing is promised
            else:
                self._put(state, holding)
        self._refresh(state, changed=before != facts)

    def _charges(self, holding: Holding, facts: NodeFacts) -> Charges | None:
        if holding.state is State.BOUND:
            return codec.read(holding.pod, facts)
        position = {gpu.key: i for i, gpu in enumerate(facts.gpus)}
        if not isinstance(holding.pod.claim, Request) or any(k not in position for keys in holding.keys for k in keys):
            return None
        places = tuple([tuple([position[key] for key in keys]) for keys in holding.keys])
        return choose.charges(holding.pod.claim.shares, facts.gpus, places)

    # Pods, as the API server shows them

    def observe(self, pod: PodFacts, now: float) -> None:
        """A pod appeared or changed."""
        if pod.claim is None or pod.finished:
            if pod.failed_reason == REFUSED_BY_KUBELET and pod.uid in self.holdings and isinstance(pod.claim, Request):
                self._rest(pod.node, pod.claim.shape, now)
            self.forget(pod.uid)
        elif pod.node:
            self._observe_bound(pod, now)
        else:
            self._observe_waiting(pod, now)

    def forget(self, uid: str) -> None:
        """A pod is gone, or its containers have ended."""
        self._unpledge(uid)
        self._remove(uid)

    def relisted(self, kept: Set[str]) -> list[PodFacts]:
        """A complete list was read: forget what is not in it. Returns pods we decided about that nothing has shown
        bound yet: newer than the list, or gone without a word; whether they exist must be asked."""
        unsure = []
        for uid in self.holdings.keys() - kept:
            holding = self.holdings[uid]
            if holding.seen:
                self.forget(uid)
            else:
                unsure.append(holding.pod)
        for uid in self.pledged.keys() - kept:
            self._unpledge(uid)
        return unsure

    def _observe_waiting(self, pod: PodFacts, now: float) -> None:
        holding = self.holdings.get(pod.uid)
        if holding is not None and holding.state is State.BOUND:
            return  # a binding is final, so an unbound sight of a bound pod is an old one
        if holding is not None and holding.state is State.HELD:
            if pod.terminating or pod.claim != holding.pod.claim:
                self._remove(pod.uid)
            else:
                holding.pod = pod
                holding.until = holding.since + hold_seconds(pod, holding.node)
        if pod.nominated and not pod.terminating and isinstance(pod.claim, Request):
            self._pledge(pod)
        else:
            self._unpledge(pod.uid)

    def _observe_bound(self, pod: PodFacts, now: float) -> None:
        self._unpledge(pod.uid)
        state = self._state(pod.node)
        old = self.holdings.get(pod.uid)
        if old is not None and old.state is State.BOUND and old.node == pod.node and old.pod == pod:
            old.seen = True
            return
        holding = _bound(pod, state)
        holding.seen = True
        if old is not None:
            self._take(self.nodes[old.node], old)
            if old.node == pod.node and old.state is State.BOUND:
                self._leave_ghost(state, old, holding, now)
        self._put(state, holding)
        if old is not None and old.node != pod.node:
            self._refresh(self.nodes[old.node], changed=True)
            self._drop_if_empty(self.nodes[old.node])
        self._refresh(state, changed=self._others_may_go(state, old, pod))

    def _others_may_go(self, state: NodeState, old: Holding | None, pod: PodFacts) -> bool:
        """Whether this news of a pod ends a refusal that was not for want of room: its like was refused here and it
        has started now, or kubelet cannot mistake it for another any more."""
        claim, ran = pod.claim, old is not None and old.pod.running
        proven = pod.running and not ran and isinstance(claim, Request) and bool(state.rests.pop(claim.shape, None))
        if old is None or state.facts is None or state.facts.pin is not Pin.PLUGIN:
            return proven
        told_apart = not waits_for_kubelet(pod) or old.pod.claim != claim
        return proven or (waits_for_kubelet(old.pod) and told_apart)

    def _leave_ghost(self, state: NodeState, old: Holding, new: Holding, now: float) -> None:
        if state.facts is None or old.charges is None or new.charges is None or old.charges == new.charges:
            return
        keys = [gpu.key for gpu in state.facts.gpus]
        left = {keys[gpu]: amount for gpu, amount in old.charges}
        before = self._lay(state, new.pod.uid)
        for key, amount in before.charges if before else ():
            left[key] = left.get(key, 0) + amount
        for gpu, amount in new.charges:
            left[keys[gpu]] = left.get(keys[gpu], 0) - amount
        charges = tuple([(key, amount) for key, amount in left.items() if amount > 0])
        if charges:
            ghost = state.ghosts[new.pod.uid] = Ghost(charges, now + MOVE_SECONDS)
            self._timed.add(state.name)
            self._haunt(state, ghost, 1)

    # Decisions of our own

    def hold(self, pod: PodFacts, node: str, policy: str, now: float) -> Places | Refusal:
        """Count a pod on a node from now on, because we expect it to be bound there."""
        if self._is_decided(pod.uid):
            return DECIDED
        self.release(pod.uid)
        found = self._plan(pod, node, policy)
        if isinstance(found, Refusal):
            return found
        holding = self._decide(pod, node, found, State.HELD)
        holding.since = now
        holding.until = now + hold_seconds(pod, node)
        return found

    def release(self, uid: str) -> None:
        """End a hold, if there is one."""
        holding = self.holdings.get(uid)
        if holding is not None and holding.state is State.HELD:
            self._remove(uid)

    def reserve(self, pod: PodFacts, node: str, policy: str) -> Places | Refusal:
        """A binding is about to be sent: what was held there, or else what fits now, is taken for it."""
        if self._is_decided(pod.uid):
            return DECIDED
        holding = self.holdings.get(pod.uid)
        if holding is not None and holding.node == node and holding.pod.claim == pod.claim:
            places = self._still(holding)
            if places is not None:
                holding.state = State.RESERVED
                del self._held[pod.uid]
                return places
        self.release(pod.uid)
        found = self._plan(pod, node, policy)
        if not isinstance(found, Refusal):
            self._decide(pod, node, found, State.RESERVED)
        return found

    def confirm(self, pod: PodFacts) -> None:
        """The API server took the binding. `pod` is the pod as it stands there now."""
        holding = self.holdings.get(pod.uid)
        if holding is not None and holding.state is State.RESERVED:
            self._unpledge(pod.uid)
            state = self.nodes[holding.node]
            self._take(state, holding)
            self._put(state, _bound(pod, state))
            self._refresh(state)

    def undo(self, uid: str) -> None:
        """The binding was surely not made."""
        holding = self.holdings.get(uid)
        if holding is not None and holding.state is State.RESERVED:
            self._remove(uid)

    def expire(self, now: float) -> None:
        """What ends by time: holds, ghosts of moved pods, rests."""
        for uid in [uid for uid, holding in self._held.items() if holding.until <= now]:
            self._remove(uid)
        for state in [self.nodes[name] for name in self._timed if name in self.nodes]:
            over = [uid for uid, ghost in state.ghosts.items() if ghost.until <= now]
            for uid in over:
                self._lay(state, uid)
            ended = [rest for rest in state.rests.values() if rest.active and rest.until <= now]
            for rest in ended:
                rest.active = False  # remembered, so that the next refusal rests longer
            if over or ended:
                self._refresh(state, changed=bool(ended))
            if not state.ghosts and not any(rest.active for rest in state.rests.values()):
                self._timed.discard(state.name)

    # Questions

    def fitting(self, request: Request, pod: PodFacts, among: Sequence[str]) -> list[str]:
        """Those of the named nodes that can take the pod now. A look-up: nothing is computed per GPU."""
        share = request.shares[0]
        if request.one_share and share.role is Role.APP:
            need = share.units
            largest = self._largest.get((request.pin, request.unit), {}).get
            fits = [node for node in among if largest(node, -1) >= need]
        else:
            refusals = self.answers(request, pod.namespace).refusals.get
            fits = [node for node in among if refusals(node, NO_SHARED_GPU) is None]
        if self.special:
            question = Question(request)
            special = {n for n in self.special.intersection(fits) if self.refusal(question, n, pod) is not None}
            fits = [node for node in fits if node not in special] if special else fits
        return fits

    def answers(self, request: Request, namespace: str) -> Answers:
        return self.shapes.ask(namespace, request, self.nodes, self._answer)  # type: ignore[arg-type]

    def refusals(self, request: Request, pod: PodFacts, among: Sequence[str]) -> dict[str, Refusal]:
        """Why none of the named nodes can take the pod."""
        question = Question(request)
        reasons = {}
        for node in among:
            refused = self.refusal(question, node, pod)
            if refused is not None:
                reasons[node] = refused
        return reasons

    def refusal(self, question: Question, node: str, pod: PodFacts) -> Refusal | None:
        """Why a node cannot take the pod, or None if it can: all there is to say, pledges and rests included."""
        state = self.nodes.get(node)
        if state is None or state.room is None:
            return NO_SHARED_GPU
        room = state.room_for(pod) if state.pledges else state.room
        refused = question.refusal(room) if room else NO_SHARED_GPU
        refused = refused or state.like_under_way(question.request, pod.uid)
        if refused is None and state.rests:
            rest = state.rests.get(question.request.shape)
            refused = JUST_REFUSED if rest is not None and rest.active else None
        return refused

    def _answer(self, question: Question, node: str) -> Refusal | None:
        state = self.nodes[node]
        if state.room is None:
            return NO_SHARED_GPU
        return question.refusal(state.room) or state.like_under_way(question.request, "")

    def _plan(self, pod: PodFacts, node: str, policy: str) -> Places | Refusal:
        assert isinstance(pod.claim, Request)
        question = Question(pod.claim)
        refused = self.refusal(question, node, pod)
        if refused is not None:
            return refused
        room = self.nodes[node].room_for(pod)
        if room is None:
            return NO_SHARED_GPU
        # A long search may give up in one order and not in the other; that there is room was found by binpack.
        places = choose.plan(pod.claim, room, policy) or choose.plan(pod.claim, room, choose.BINPACK)
        return NO_SHARED_GPU if places is None else places

    def _is_decided(self, uid: str) -> bool:
        holding = self.holdings.get(uid)
        return holding is not None and holding.state is not State.HELD

    def _still(self, holding: Holding) -> Places | None:
        """The GPUs of a hold, if they can be had: the node may have changed since, and others come unasked."""
        state, claim = self.nodes[holding.node], holding.pod.claim
        facts = state.facts
        if facts is None or not isinstance(claim, Request) or Question(claim).off_limits(facts) is not None:
            return None
        position = {gpu.key: i for i, gpu in enumerate(facts.gpus) if gpu.healthy}
        if any(key not in position for keys in holding.keys for key in keys):
            return None
        used = state.effective()
        if any(used[gpu] > facts.gpus[gpu].total for gpu, _ in holding.charges or ()):
            return None
        return tuple([tuple([position[key] for key in keys]) for keys in holding.keys])

    # What everything above is made of

    def _decide(self, pod: PodFacts, node: str, places: Places, to: State) -> Holding:
        state = self.nodes[node]
        assert state.facts is not None
        assert isinstance(pod.claim, Request)
        holding = Holding(pod, node, to, choose.charges(pod.claim.shares, state.facts.gpus, places))
        holding.keys = tuple([tuple([state.facts.gpus[gpu].key for gpu in chosen]) for chosen in places])
        self._put(state, holding)
        self._refresh(state)
        return holding

    def _remove(self, uid: str) -> None:
        holding = self.holdings.get(uid)
        if holding is not None:
            state = self.nodes[holding.node]
            self._take(state, holding)
            self._lay(state, uid)
            self._refresh(state, changed=True)
            self._drop_if_empty(state)

    def _put(self, state: NodeState, holding: Holding) -> None:
        self.holdings[holding.pod.uid] = state.holdings[holding.pod.uid] = holding
        if holding.state is State.HELD:
            self._held[holding.pod.uid] = holding
        self._charge(state, holding, 1)

    def _take(self, state: NodeState, holding: Holding) -> None:
        del self.holdings[holding.pod.uid], state.holdings[holding.pod.uid]
        self._held.pop(holding.pod.uid, None)
        self._charge(state, holding, -1)

    def _charge(self, state: NodeState, holding: Holding, sign: int) -> None:
        state.vague += sign * holding.vague
        state.split += sign * holding.splits
        for gpu, amount in holding.charges or ():
            state.used[gpu] += sign * amount

    def _haunt(self, state: NodeState, ghost: Ghost, sign: int) -> None:
        position = {gpu.key: i for i, gpu in enumerate(state.facts.gpus)} if state.facts else {}
        for key, amount in ghost.charges:
            if key in position:
                state.used[position[key]] += sign * amount

    def _lay(self, state: NodeState, uid: str) -> Ghost | None:
        """End the ghost of a pod, if there is one."""
        ghost = state.ghosts.pop(uid, None)
        if ghost is not None:
            self._haunt(state, ghost, -1)
        return ghost

    def _refresh(self, state: NodeState, *, changed: bool = False) -> None:
        """Work out again what is free on a node, and tell everything that was derived from it. `changed`: somebody
        may go there now for another reason than that more is free. What is pledged shifts with all that happens."""
        before = state.room
        state.room = Room.of(state.facts, state.effective()) if state.facts is not None else None
        self._index(state)
        self.shapes.touch(state.name, len(self.nodes))
        changed = changed or bool(state.pledges) or before is None
        if state.room is not None and (
            changed or before is None or any(a > b for a, b in zip(state.room.free, before.free, strict=False))
        ):
            self.grown.add(state.name)

    def _index(self, state: NodeState) -> None:
        name, room = state.name, state.room
        for lane in self._largest.values():
            lane.pop(name, None)
        for ranked in self.spots.values():
            ranked.pop(name, None)
        if room is not None and room.rising and room.facts.blocked is None:
            spots = (*[(free << SUM_BITS) + room.sum_free for free in room.rising], IMPOSSIBLE)
            pin = Pin.DIRECT if room.facts.pin is Pin.DIRECT else Pin.PLUGIN
            for unit in (None, room.facts.unit):
                self._largest.setdefault((pin, unit), {})[name] = room.rising[-1]
                self.spots.setdefault((pin, unit), {})[name] = spots
        if state.pledges or state.split or any(rest.active for rest in state.rests.values()):
            self.special.add(name)
        else:
            self.special.discard(name)

    def _state(self, name: str) -> NodeState:
        state = self.nodes.get(name)
        if state is None:
            state = self.nodes[name] = NodeState(name)
        return state

    def _drop_if_empty(self, state: NodeState) -> None:
        if state.facts is None and not (state.holdings or state.pledges):
            del self.nodes[state.name]
            self.special.discard(state.name)
            self._timed.discard(state.name)
            self.shapes.touch(state.name, len(self.nodes))

    def _pledge(self, pod: PodFacts) -> None:
        if self.pledged.get(pod.uid) != pod.nominated:
            self._unpledge(pod.uid)
        state = self._state(pod.nominated)
        if state.pledges.get(pod.uid) != pod:
            self.pledged[pod.uid] = pod.nominated
            state.pledges[pod.uid] = pod
            self._refresh(state)

    def _unpledge(self, uid: str) -> None:
        node = self.pledged.pop(uid, None)
        if node is not None:
            state = self.nodes[node]
            del state.pledges[uid]
            self._refresh(state, changed=True)
            self._drop_if_empty(state)

    def _rest(self, node: str, shape: Shape, now: float) -> None:
        state = self._state(node)
        first, longest = REST_SECONDS
        before = state.rests.get(shape)
        length = first
        if before is not None:  # while it rests, only those sent there before are refused: one refusal, not several
            length = before.length if before.active else min(before.length * 2, longest)
        state.rests[shape] = Rest(now + length, length)
        self._timed.add(node)
        self._refresh(state)


def _bound(pod: PodFacts, state: NodeState) -> Holding:
    return Holding(pod, state.name, State.BOUND, codec.read(pod, state.facts) if state.facts else None)


def hold_seconds(pod: PodFacts, node: str) -> float:
    """How long a hold lasts: volumes may take minutes between the decision and the binding."""
    return SLOW_HOLD_SECONDS if pod.slow_volumes or pod.nominated == node else HOLD_SECONDS


def _published(facts: NodeFacts) -> tuple[object, ...]:
    return (facts.unit, facts.pin, facts.gpus)
