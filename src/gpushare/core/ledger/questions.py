"""What nodes say to a request: everything the ledger is asked.

A request of one share is compared with each node's largest free GPU (`index`). For any other shape there is a table
(`answers`). Nodes whose answer depends on the pod are asked one by one: something is nominated or kept there, or the
node cools down. What a question may cost is bounded; nodes that it does not reach are looked at afterwards (`study`).
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set

from gpushare.core.facts.model import PodFacts, Refusal, Request, Role
from gpushare.core.facts.packing.model import Mixture, Scorer
from gpushare.core.ledger.answers import Answers
from gpushare.core.ledger.entries import Entries
from gpushare.core.ledger.index import Order
from gpushare.core.order.ranked import Ranked
from gpushare.core.placement import cost
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import JUST_REFUSED, NO_SHARED_GPU, OTHER_NODE, Question, kept_for_other


class Questions(Entries):
    def __init__(self) -> None:
        super().__init__()
        self._studied = 0  # how often `study` was called: whose turn it is

    def special(self) -> Set[str]:
        """The nodes whose answer depends on more than what is free."""
        return self._index.special

    def promised(self) -> Set[str]:
        """Those of them where something is nominated or kept: what is free there depends on who asks."""
        return self._index.promised

    def gpu_order(self, request: Request, *, emptiest_first: bool) -> Order:
        """All GPUs by what they have free, for a request of one share."""
        return self._index.order(request, emptiest_first=emptiest_first)

    def ranked(self, namespace: str, what: Hashable, by: object) -> Ranked:
        """The kept order for such requests; nodes that changed since are open. `by`: what all keys depend on."""
        order = self._orders.get(namespace, what)
        if order is None:
            order = self._orders.put(namespace, what, Ranked(), len(self._nodes))
        return self.renewed(order, by)

    def renewed(self, order: Ranked, by: object) -> Ranked:
        order.renew(self._changes, self._nodes, by)
        return order

    def orders(self, by: Collection[object]) -> list[tuple[str, Hashable, Ranked]]:
        """The kept orders that depend on one of these, with namespace and key: first those that were asked last."""
        kept = [row for row in self._orders.items() if any(row[2].by is each for each in by)]
        return sorted(kept, key=lambda row: row[2].seen, reverse=True)

    def learn(
        self,
        mixture: Mixture,
        scorers: Mapping[str, Scorer] = {},
        orders: Collection[tuple[str, Hashable, Ranked]] = (),
    ) -> None:
        """From now on policies that pack expect such pods. `scorers`: those that are made already. `orders`: those that
        are worked out by them."""
        self.mixture = mixture
        self._scorers = dict(scorers)
        for namespace, what, order in orders:
            self._orders.replace(namespace, what, order)

    def rooms_for(
        self, request: Request | None, namespace: str, among: Collection[str], budget: Budget
    ) -> dict[str, bool]:
        """Whether the named nodes have room, promises aside: of those that the budget reaches."""
        if request is None:
            return dict.fromkeys(among, True)
        if request.one_share and request.shares[0].role is Role.APP:
            need, largest = request.shares[0].units, self._index.largest(request).get
            return {node: largest(node, -1) >= need for node in among}
        answers = self.answers(request, namespace, among, budget)
        return {node: answers.refusals.get(node, NO_SHARED_GPU) is None for node in among if node not in answers.open}

    def refuses(self, request: Request, pod: PodFacts, node: str, budget: Budget) -> bool:
        """Whether a node cannot take the pod, for whatever reason: asked of special nodes."""
        return self.refusal(self._question(request, pod.namespace), node, pod, budget) is not None

    def fitting(self, request: Request, pod: PodFacts, among: Sequence[str], budget: Budget | None = None) -> list[str]:
        """Those of the named nodes that can take the pod now. A look-up: nothing is computed per GPU."""
        budget = budget or Budget(cost.UNHURRIED_LOOKS)
        if pod.only_node:
            among = [node for node in among if node == pod.only_node]
        share = request.shares[0]
        if request.one_share and share.role is Role.APP:
            need = share.units
            largest = self._index.largest(request).get
            fits = [node for node in among if largest(node, -1) >= need]
        else:
            refusals = self.answers(request, pod.namespace, among, budget).refusals.get
            fits = [node for node in among if refusals(node, NO_SHARED_GPU) is None]
        if self._index.special:
            special = self._index.special.intersection(fits)
            refused = {node for node, reason in self._special(request, pod, special, budget) if reason is not None}
            fits = [node for node in fits if node not in refused] if refused else fits
        return fits

    def answers(self, request: Request, namespace: str, among: Collection[str], budget: Budget) -> Answers:
        """What is kept about such requests, up to date for the named nodes as far as the budget goes."""
        answers = self._shapes.ask(namespace, request, self._nodes)
        if answers.open:
            self._look_at(answers, among, budget)
        return answers

    def study(self, budget: Budget) -> bool:
        """Look at nodes that calls had no time for, while a pod waits for the answer. Shapes are served in turn, and
        the first has enough budget for a whole search: else a hard one would begin anew for ever. Returns whether
        something is left to look at."""
        wanted = self._shapes.wanted()
        for answers in wanted[self._studied % len(wanted) :] + wanted[: self._studied % len(wanted)] if wanted else ():
            self._shapes.renew(answers, self._nodes)
            self._grown.update(self._look_at(answers, answers.open, budget))
            answers.wanted = bool(answers.open)
            if budget.left <= 0:
                break
        self._studied += 1
        return any(answers.wanted for answers in wanted)

    def _look_at(self, answers: Answers, among: Collection[str], budget: Budget) -> list[str]:
        """Answer what is open of the named nodes, the emptiest first, and return those that fit."""
        if budget.left <= 0:
            return []
        if len(among) < len(answers.open):
            states = [self._nodes[node] for node in dict.fromkeys(among) if node in answers.open]
        else:
            named = set(among)
            states = [self._nodes[node] for node in answers.open if node in named]  # few are open
        states.sort(key=lambda state: state.room.sum_free if state.room is not None else -1, reverse=True)
        budget.left -= len(states)
        fits = []
        for state in states:
            refused: Refusal | None = NO_SHARED_GPU
            if state.room is not None:
                refused = answers.judge(state.room, budget)
                if answers.is_open(refused, budget):
                    break
                refused = refused or state.still_starting(answers.request, "", budget)
            del answers.open[state.name]
            answers.refusals[state.name] = refused
            if refused is None:
                fits.append(state.name)
        return fits

    def refusals(
        self, request: Request, pod: PodFacts, among: Sequence[str], budget: Budget | None = None
    ) -> dict[str, Refusal]:
        """Why none of the named nodes can take the pod."""
        answers = self.judged(request, pod, among, budget or Budget(cost.UNHURRIED_LOOKS))
        return {node: refusal for node, refusal in answers if refusal is not None}

    def judged(
        self, request: Request, pod: PodFacts, among: Collection[str], budget: Budget
    ) -> Iterator[tuple[str, Refusal | None]]:
        """What each of the named nodes says to the pod: all there is to say, nominations and cool-downs included."""
        if pod.only_node:
            yield from ((node, OTHER_NODE) for node in among if node != pod.only_node)
            among = [node for node in among if node == pod.only_node]
        if request.one_share and request.shares[0].role is Role.APP:
            question = Question(request)
            for node in among:
                yield node, self.refusal(question, node, pod, budget)
            return
        answers = self.answers(request, pod.namespace, among, budget)
        answers.wanted = answers.wanted or bool(answers.open)
        special = dict(self._special(request, pod, self._index.special.intersection(among), budget))
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
        """The answers of nodes whose answer depends on the pod."""
        if nodes:
            question = self._question(request, pod.namespace)
            for node in nodes:
                yield node, self.refusal(question, node, pod, budget)

    def _question(self, request: Request, namespace: str) -> Question | Answers:
        """Whom to ask about a request: one share needs no table."""
        return Question(request) if request.one_share else self._shapes.ask(namespace, request, self._nodes)

    def refusal(
        self, question: Question | Answers, node: str, pod: PodFacts, budget: Budget | None = None
    ) -> Refusal | None:
        """Why a node cannot take the pod, or None if it can. Nominations and cool-downs are included."""
        state = self._nodes.get(node)
        if pod.only_node not in ("", node):
            return OTHER_NODE
        if state is None or state.room is None:
            return NO_SHARED_GPU
        room = state.room_for(pod) if state.promised else state.room
        if room is None:
            return NO_SHARED_GPU
        budget = budget or Budget(cost.SEARCH_LOOKS)
        judge = question.refusal if isinstance(question, Question) else question.judge
        refused = judge(room, budget)
        if refused is not None and state.promised and state.kept() and not refused.forever:
            otherwise = state.room_for(pod, kept=False)
            if otherwise is not None and judge(otherwise, budget) is None:
                return kept_for_other(refused)
        return refused or self.puts_off(question.request, node, pod.uid, budget)

    def puts_off(self, request: Request, node: str, uid: str, budget: Budget) -> Refusal | None:
        """Why a node that has room takes such a pod only later."""
        state = self._nodes[node]
        waits = state.still_starting(request, uid, budget)
        return waits or (JUST_REFUSED if state.is_cooling_down(request) else None)
