"""Who holds what on which GPU: the one thing that changes.

Everything here is a cache of what the API server knows, plus the decisions of the last moments that it does not know
yet: *holds* (the node we expect a pod to go to), *reservations* (a binding is under way), *pledges* (a pod that
evicted others waits for what they leave) and what is *kept* (a pod that has waited long gets what comes free there).
Every change goes through `_put` and `_take`, which move exactly the same units, so that nothing leaks; what is free is
never below zero, so that nothing underflows.

What it is asked stands in `questions`. No clock: callers pass `now`. Not thread-safe: it lives on one event loop, and
no method awaits.
"""

from collections.abc import Set

from gpushare.core.annotations import pod_gpus
from gpushare.core.annotations.pod_gpus import Charges
from gpushare.core.facts import policies
from gpushare.core.facts.model import NodeFacts, Places, PodFacts, Refusal, Request
from gpushare.core.ledger.questions import Questions
from gpushare.core.ledger.state import Holding, Kept, NodeState, State
from gpushare.core.placement import gpu_choice
from gpushare.core.placement.fit import NO_SHARED_GPU, Question

HOLD_SECONDS = 30.0
SLOW_HOLD_SECONDS = 900.0  # while volumes are bound: kube-scheduler gives them 600 s
REFUSED_BY_KUBELET = "UnexpectedAdmissionError"
DECIDED = Refusal("Decided", "the pod is bound, or being bound")


class Ledger(Questions):
    def __init__(self) -> None:
        super().__init__()
        self.holdings: dict[str, Holding] = {}
        self.pledged: dict[str, str] = {}  # uid -> node
        self.kept: dict[str, Kept] = {}  # by uid
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
        before, holdings = state.facts, list(state.holdings.values())
        state.begin_anew(facts)
        for holding in holdings:
            holding.charges = self._charges(holding, facts) if facts else None
            holding.unlocated = 0 if holding.charges is not None else holding.somewhere(facts)
            if holding.charges is None and holding.state is State.HELD:
                del self.holdings[holding.pod.uid], self._held[holding.pod.uid]  # its GPU is gone; nothing is promised
            else:
                self._put(state, holding)
        self._refresh(state, changed=before != facts)

    def _charges(self, holding: Holding, facts: NodeFacts) -> Charges | None:
        if holding.state is State.BOUND:
            return pod_gpus.read(holding.pod, facts)
        position = {gpu.key: i for i, gpu in enumerate(facts.gpus)}
        if not isinstance(holding.pod.request, Request) or any(
            k not in position for keys in holding.keys for k in keys
        ):
            return None
        places = tuple([tuple([position[key] for key in keys]) for keys in holding.keys])
        if holding.unit != facts.unit and holding.state is State.HELD:
            return None  # it was found to fit in another unit
        return pod_gpus.charges(holding.pod.request.shares, facts, places, holding.unit_on(facts))

    # Pods, as the API server shows them

    def observe(self, pod: PodFacts, now: float) -> None:
        """A pod appeared or changed."""
        if pod.request is None or pod.finished:
            if pod.failed_reason == REFUSED_BY_KUBELET:
                self._observe_refused(pod, now)
            self.forget(pod.uid)
        elif pod.node:
            self._observe_bound(pod, now)
        else:
            self._observe_waiting(pod)

    def forget(self, uid: str) -> None:
        """A pod is gone, or its containers have ended."""
        self._unpledge(uid)
        self.keep_no_longer(uid)
        self._remove(uid)

    def relisted(self, kept: Set[str], unbound: Set[str] = frozenset()) -> list[PodFacts]:
        """A complete list was read: forget what is not in it, and the bindings of what it shows unbound. Returns pods
        we decided about that nothing has shown bound yet: newer than the list, or gone, or put back without a word;
        how they are must be asked."""
        unsure = []
        for uid in self.holdings.keys() - kept:
            holding = self.holdings[uid]
            if holding.seen:
                self.forget(uid)
            else:
                unsure.append(holding.pod)
        for uid in self.holdings.keys() & kept & unbound:
            holding = self.holdings[uid]
            if holding.seen:
                self.unbind(uid)
            elif holding.state is State.BOUND:
                unsure.append(holding.pod)
        for uid in self.pledged.keys() - kept:
            self._unpledge(uid)
        for uid in self.kept.keys() - kept:
            self.keep_no_longer(uid)
        return unsure

    def unbind(self, uid: str) -> None:
        """A binding that was made is not there any more: the cluster was put back to a copy from before it."""
        holding = self.holdings.get(uid)
        if holding is not None and holding.state is State.BOUND:
            self._remove(uid)

    def _observe_refused(self, pod: PodFacts, now: float) -> None:
        holding = self.holdings.get(pod.uid)
        if holding is not None and holding.node == pod.node and isinstance(pod.request, Request):
            self.nodes[pod.node].rest(pod.request, now)
            self._timed.add(pod.node)

    def _observe_waiting(self, pod: PodFacts) -> None:
        holding = self.holdings.get(pod.uid)
        if holding is not None and holding.state is State.BOUND:
            return  # an unbound sight of a bound pod is an old one, unless a complete list ends with it: `relisted`
        if holding is not None and holding.state is State.HELD:
            if pod.terminating or pod.request != holding.pod.request:
                self._remove(pod.uid)
            else:
                holding.pod = pod
                holding.until = holding.since + hold_seconds(pod, holding.node)
        kept = self.kept.get(pod.uid)
        if kept is not None and (pod.terminating or pod.request != kept.pod.request):
            self.keep_no_longer(pod.uid)
        if pod.nominated and not pod.terminating and isinstance(pod.request, Request):
            self._pledge(pod)
        else:
            self._unpledge(pod.uid)

    def _observe_bound(self, pod: PodFacts, now: float) -> None:
        self._unpledge(pod.uid)
        self.keep_no_longer(pod.uid)
        state = self._state(pod.node)
        old = self.holdings.get(pod.uid)
        if old is not None and old.state is State.BOUND and old.node == pod.node and old.pod == pod:
            old.seen = True
            return
        holding = _bound(pod, state)
        holding.seen = True
        others_may_go = state.is_news(old.pod if old is not None else None, pod)
        if old is not None:
            self._take(self.nodes[old.node], old)
            if old.node == pod.node and old.state is State.BOUND and state.keep_old_place(old, holding, now):
                self._timed.add(state.name)
        self._put(state, holding)
        if old is not None and old.node != pod.node:
            self._refresh(self.nodes[old.node], changed=True)
            self._drop_if_empty(self.nodes[old.node])
        self._refresh(state, changed=others_may_go)

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
        if holding is not None and holding.node == node and holding.pod.request == pod.request:
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
            self.keep_no_longer(pod.uid)
            state = self.nodes[holding.node]
            self._take(state, holding)
            self._put(state, _bound(pod, state))
            self._refresh(state)

    def undo(self, uid: str) -> None:
        """The binding was surely not made."""
        holding = self.holdings.get(uid)
        if holding is not None and holding.state is State.RESERVED:
            self._remove(uid)

    def is_crowded(self, uid: str) -> bool:
        """Whether a GPU that is held for a pod has given more than it has: others came unasked."""
        holding = self.holdings.get(uid)
        facts = self.nodes[holding.node].facts if holding is not None else None
        if holding is None or facts is None:
            return False
        used = self.nodes[holding.node].effective()
        return any(used[gpu] > facts.gpus[gpu].total for gpu, _ in holding.charges or ())

    def keep(self, kept: Kept) -> None:
        """What comes free on these GPUs is for this pod from now on; others of at most its priority get the rest."""
        self.keep_no_longer(kept.pod.uid)
        state = self._state(kept.node)
        self.kept[kept.pod.uid] = state.kept[kept.pod.uid] = kept
        self._refresh(state)

    def keep_no_longer(self, uid: str) -> None:
        """The pod is placed or gone, or somebody else's turn has come."""
        kept = self.kept.pop(uid, None)
        if kept is not None:
            state = self.nodes[kept.node]
            del state.kept[uid]
            self._refresh(state, changed=True)
            self._drop_if_empty(state)

    def expire(self, now: float) -> None:
        """What ends by time: holds, old places of moved pods, rests."""
        for uid in [uid for uid, holding in self._held.items() if holding.until <= now]:
            self._remove(uid)
        for state in [self.nodes[name] for name in self._timed if name in self.nodes]:
            if state.expire(now):
                self._refresh(state, changed=True)
            if not state.old_places and not state.rests:
                self._timed.discard(state.name)

    # What decisions are made of

    def _plan(self, pod: PodFacts, node: str, policy: str) -> Places | Refusal:
        assert isinstance(pod.request, Request)
        question = Question(pod.request)
        refused = self.refusal(question, node, pod)
        if refused is not None:
            return refused
        room = self.nodes[node].room_for(pod)
        if room is None:
            return NO_SHARED_GPU
        # A long search may give up in one order and not in the other; that there is room was found by binpack.
        places = gpu_choice.plan(pod.request, room, policy) or gpu_choice.plan(pod.request, room, policies.DEFAULT)
        return question.too_hard if places is None else places

    def _is_decided(self, uid: str) -> bool:
        holding = self.holdings.get(uid)
        return holding is not None and holding.state is not State.HELD

    def _still(self, holding: Holding) -> Places | None:
        """The GPUs of a hold, if they can be had: the node may have changed since, and others come unasked."""
        state, request = self.nodes[holding.node], holding.pod.request
        facts = state.facts
        if facts is None or not isinstance(request, Request) or Question(request).off_limits(facts) is not None:
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
        assert isinstance(pod.request, Request)
        held = gpu_choice.charges(pod.request.shares, state.facts.gpus, places)
        holding = Holding(pod, node, to, held, state.facts)
        holding.keys = tuple([tuple([state.facts.gpus[gpu].key for gpu in chosen]) for chosen in places])
        self._put(state, holding)
        self._refresh(state)
        return holding

    def _remove(self, uid: str) -> None:
        holding = self.holdings.get(uid)
        if holding is not None:
            state = self.nodes[holding.node]
            self._take(state, holding)
            state.drop_old_place(uid)
            self._refresh(state, changed=True)
            self._drop_if_empty(state)

    def _put(self, state: NodeState, holding: Holding) -> None:
        self.holdings[holding.pod.uid] = state.holdings[holding.pod.uid] = holding
        if holding.state is State.HELD:
            self._held[holding.pod.uid] = holding
        state.charge(holding, 1)

    def _take(self, state: NodeState, holding: Holding) -> None:
        del self.holdings[holding.pod.uid], state.holdings[holding.pod.uid]
        self._held.pop(holding.pod.uid, None)
        state.charge(holding, -1)

    def _refresh(self, state: NodeState, *, changed: bool = False) -> None:
        """Work out again what is free on a node, and tell everything that was derived from it. `changed`: somebody
        may go there now for another reason than that more is free. What is pledged shifts with all that happens."""
        before = state.room
        state.renew()
        self.index(state)
        self.shapes.touch(state.name, len(self.nodes))
        if state.room is not None:
            grew = before is None or any(a > b for a, b in zip(state.room.free, before.free, strict=False))
            if grew or changed or state.pledges or state.kept:
                self.grown.add(state.name)

    def _state(self, name: str) -> NodeState:
        state = self.nodes.get(name)
        if state is None:
            state = self.nodes[name] = NodeState(name)
        return state

    def _drop_if_empty(self, state: NodeState) -> None:
        if state.facts is None and not (state.holdings or state.pledges or state.kept):
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


def _bound(pod: PodFacts, state: NodeState) -> Holding:
    charges = pod_gpus.read(pod, state.facts) if state.facts else None
    return Holding(pod, state.name, State.BOUND, charges, state.facts)


def hold_seconds(pod: PodFacts, node: str) -> float:
    """How long a hold lasts: volumes may take minutes between the decision and the binding."""
    return SLOW_HOLD_SECONDS if pod.slow_volumes or pod.nominated == node else HOLD_SECONDS
