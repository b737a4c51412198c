"""What nodes say to a request: everything the ledger is asked.

A request of one share is compared with each node's largest free GPU. For any other shape there is a table, `shapes`.
Nodes whose answer depends on who asks (something is pledged or kept there, or the node rests) are asked one by one.
What a question may cost is bounded; what it does not reach is looked at afterwards. The `ledger` fills what is read
here, and calls `index` whenever a node has changed.
"""

from collections.abc import Collection, Iterator, Sequence

from gpushare.core.facts.model import Pin, PodFacts, Refusal, Request, Role, Unit
from gpushare.core.facts.policies import IMPOSSIBLE
from gpushare.core.ledger.answers import Answers, Shapes
from gpushare.core.ledger.state import NodeState
from gpushare.core.placement import cost
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import JUST_REFUSED, NO_SHARED_GPU, Question, kept_for_other

SUM_BITS = 32  # the free units of a whole node fit below that

Lane = tuple[Pin | None, Unit | None]


class Questions:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.grown: set[str] = set()  # nodes where something came free since somebody last cleared this
        self.shapes = Shapes()
        # What scoring reads, one number per well GPU: its free units before those of its node; then IMPOSSIBLE.
        self.spots: dict[Lane, dict[str, tuple[int, ...]]] = {}
        self.special: set[str] = set()  # nodes whose answer depends on more than what is free
        self._studied = 0  # turns of those who wait for an answer
        self._largest: dict[Lane, dict[str, int]] = {}  # largest free GPU of the nodes that may serve such pods

    def index(self, state: NodeState) -> None:
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
        if state.pledges or state.kept or state.split or state.is_resting:
            self.special.add(name)
        else:
            self.special.discard(name)

    def fitting(self, request: Request, pod: PodFacts, among: Sequence[str], budget: Budget | None = None) -> list[str]:
        """Those of the named nodes that can take the pod now. A look-up: nothing is computed per GPU."""
        budget = budget or Budget(cost.UNHURRIED_LOOKS)
        share = request.shares[0]
        if request.one_share and share.role is Role.APP:
            need = share.units
            largest = self._largest.get((request.pin, request.unit), {}).get
            fits = [node for node in among if largest(node, -1) >= need]
        else:
            refusals = self.answers(request, pod.namespace, among, budget).refusals.get
            fits = [node for node in among if refusals(node, NO_SHARED_GPU) is None]
        if self.special:
            special = self.special.intersection(fits)
            refused = {node for node, reason in self._special(request, pod, special, budget) if reason is not None}
            fits = [node for node in fits if node not in refused] if refused else fits
        return fits

    def answers(self, request: Request, namespace: str, among: Collection[str], budget: Budget) -> Answers:
        """What is kept about such requests, up to date for the named nodes as far as the budget goes."""
        answers = self.shapes.ask(namespace, request, self.nodes)
        if answers.open:
            self._look_at(answers, among, budget)
        return answers

    def study(self, budget: Budget) -> None:
        """Look at nodes that calls had no time for, while somebody waits for the answer. Who waits is served in turn,
        and whoever comes first has enough for a whole search: else a hard one would begin anew for ever."""
        wanted = self.shapes.wanted()
        for answers in wanted[self._studied % len(wanted) :] + wanted[: self._studied % len(wanted)] if wanted else ():
            self.shapes.renew(answers, self.nodes)
            self.grown.update(self._look_at(answers, answers.open, budget))
            answers.wanted = bool(answers.open)
            if budget.left <= 0:
                break
        self._studied += 1

    def _look_at(self, answers: Answers, among: Collection[str], budget: Budget) -> list[str]:
        """Answer what is open of the named nodes, the emptiest first, and return those that fit."""
        if budget.left <= 0:
            return []
        states = [self.nodes[node] for node in dict.fromkeys(among) if node in answers.open]  # a name may come twice
        states.sort(key=lambda state: state.room.sum_free if state.room is not None else -1, reverse=True)
        budget.left -= len(states)
        fits = []
        for state in states:
            refused: Refusal | None = NO_SHARED_GPU
            if state.room is not None:
                refused = answers.judge(state.room, budget)
                if answers.is_open(refused, budget):
                    break
                refused = refused or state.like_under_way(answers.request, "", budget)
            del answers.open[state.name]
            answers.refusals[state.name] = refused
            if refused is None:
                fits.append(state.name)
        return fits

    def refusals(
        self, request: Request, pod: PodFacts, among: Sequence[str], budget: Budget | None = None
    ) -> dict[str, Refusal]:
        """Why none of the named nodes can take the pod."""
        said = self.judged(request, pod, among, budget or Budget(cost.UNHURRIED_LOOKS))
        return {node: refused for node, refused in said if refused is not None}

    def judged(
        self, request: Request, pod: PodFacts, among: Collection[str], budget: Budget
    ) -> Iterator[tuple[str, Refusal | None]]:
        """What each of the named nodes says to the pod: all there is to say, pledges and rests included."""
        if request.one_share and request.shares[0].role is Role.APP:
            question = Question(request)
            for node in among:
                yield node, self.refusal(question, node, pod, budget)
            return
        answers = self.answers(request, pod.namespace, among, budget)
        answers.wanted = answers.wanted or bool(answers.open)
        special = dict(self._special(request, pod, self.special.intersection(among), budget))
        for node in among:
            if node in special:
                yield node, special[node]
            elif node in answers.open:
                yield node, answers.question.too_hard
            else:
                yield node, answers.refusals.get(node, NO_SHARED_GPU)

    def _special(
        self, request: Request, pod: PodFacts, nodes: Collection[str], budget: Budget
    ) -> Iterator[tuple[str, Refusal | None]]:
        """What nodes say whose answer depends on the pod."""
        if nodes:
            question = self._question(request, pod.namespace)
            for node in nodes:
                yield node, self.refusal(question, node, pod, budget)

    def _question(self, request: Request, namespace: str) -> Question | Answers:
        """Whom to ask about a request: one share needs no table."""
        return Question(request) if request.one_share else self.shapes.ask(namespace, request, self.nodes)

    def refusal(
        self, question: Question | Answers, node: str, pod: PodFacts, budget: Budget | None = None
    ) -> Refusal | None:
        """Why a node cannot take the pod, or None if it can: all there is to say, pledges and rests included."""
        state = self.nodes.get(node)
        if state is None or state.room is None:
            return NO_SHARED_GPU
        room = state.room_for(pod) if state.pledges or state.kept else state.room
        if room is None:
            return NO_SHARED_GPU
        budget = budget or Budget(cost.SEARCH_LOOKS)
        judge = question.refusal if isinstance(question, Question) else question.judge
        refused = judge(room, budget)
        if refused is not None and state.kept and not refused.forever:
            otherwise = state.room_for(pod, kept=False)
            if otherwise is not None and judge(otherwise, budget) is None:
                return kept_for_other(refused)
        return refused or self.puts_off(question.request, node, pod.uid, budget)

    def puts_off(self, request: Request, node: str, uid: str, budget: Budget) -> Refusal | None:
        """Why a node that has room takes such a pod only later."""
        state = self.nodes[node]
        waits = state.like_under_way(request, uid, budget)
        return waits or (JUST_REFUSED if state.rests_from(request) else None)
