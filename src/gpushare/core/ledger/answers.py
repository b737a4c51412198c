"""Answers kept for the shapes people really ask, so that a scheduler's call is a look-up.

A request of one share does not need this: one number per node decides it. Any other shape has a table
`node -> refusal or None`. When it is asked, the nodes that changed since are looked at again. A change of a node costs
one append, however many shapes are kept. A call looks at as many nodes as its budget allows. The others stay open, and
are looked at between calls while a pod waits for the answer. Owned by the ledger.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.core.facts.model import NodeFacts, Pin, Refusal, Request, Shape, Unit
from gpushare.core.facts.scoring.adjusted import Scoring
from gpushare.core.order.changes import Changes
from gpushare.core.order.tables import Tables
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import Question
from gpushare.core.placement.room import Room

KNOWN_LOOKS = 3  # what it costs to look up an answer, in GPUs looked at
PICTURES = 2_000  # answers kept by what a node looks like, for one shape


class Answers:
    """The answer of every node to one shape, after `seen` changes. `open`: nodes that have not been looked at since.
    `pictured_ranks` is filled by `core.scheduling.ranking`."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.question = Question(request)
        self.refusals: dict[str, Refusal | None] = {}
        self.pictured_ranks: dict[str, dict[tuple[int, ...], int | None]] = {}  # by policy and what a node looks like
        self._worths: dict[str, tuple[Scoring, dict[str, Any]]] = {}  # by policy; filled by `core.scheduling.scored`
        self.open: dict[str, None] = {}
        self.wanted = False  # a pod was refused while nodes were open
        self.seen = -1
        self._closed: dict[tuple[Pin, Unit, int, int, bool, bool, bool], Refusal | None] = {}
        self._pictured: dict[tuple[int, ...], Refusal | None] = {}

    def worths(self, policy: str, scoring: Scoring) -> dict[str, Any]:
        """By node, what its GPUs are worth by points. Kept until something changes there, or for all."""
        known = self._worths.get(policy)
        if known is None or known[0] is not scoring:
            known = self._worths[policy] = scoring, {}
        return known[1]

    def forget(self, node: str) -> None:
        """A node changed."""
        self.refusals.pop(node, None)
        for _, worths in self._worths.values():
            worths.pop(node, None)

    def forget_all(self) -> None:
        self.refusals.clear()
        self._worths.clear()

    def judge(self, room: Room, budget: Budget) -> Refusal | None:
        """The answer of a node in this state. Nodes that look the same share one. Check `is_open` on a refusal."""
        refused = self._off_limits(room.facts)
        if refused is not None:
            budget.left -= KNOWN_LOOKS
            return refused
        try:
            answer = self._pictured[room.picture]
        except KeyError:
            answer = self.question.refusal(room, budget)
            if not self.is_open(answer, budget):
                if len(self._pictured) >= PICTURES:
                    self._pictured.clear()
                self._pictured[room.picture] = answer
            return answer
        budget.left -= KNOWN_LOOKS
        return answer

    def _off_limits(self, facts: NodeFacts) -> Refusal | None:
        """Found out once for each sort of node."""
        if facts.blocked is not None:
            return facts.blocked
        mps = facts.mps_down != "", facts.only_mps
        sort = facts.pin, facts.unit, facts.limit, facts.slots, facts.nvidia_whole, *mps
        if sort not in self._closed:
            self._closed[sort] = self.question.off_limits(facts)
        return self._closed[sort]

    def is_open(self, refused: Refusal | None, budget: Budget) -> bool:
        """Whether that refusal only means that the budget is used up: another call may find out more."""
        return budget.left <= 0 and refused is self.question.too_hard


class Shapes:
    """The answers to all shapes that are kept."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._kept: Tables[Shape, Answers] = Tables()

    def ask(self, namespace: str, request: Request, nodes: Mapping[str, object]) -> Answers:
        """The answers to a request; whatever changed since they were given is open."""
        shape = request.shape
        answers = self._kept.get(namespace, shape)
        if answers is None:
            answers = self._kept.put(namespace, shape, Answers(request), len(nodes))
        return self.renew(answers, nodes)

    def renew(self, answers: Answers, nodes: Mapping[str, object]) -> Answers:
        changed = self._changes.since(answers.seen)
        if changed is None:
            answers.forget_all()
            answers.open = dict.fromkeys(nodes)
        else:
            for node in changed:
                answers.forget(node)
                if node in nodes:
                    answers.open[node] = None
                else:
                    answers.open.pop(node, None)
        answers.seen = self._changes.count
        return answers

    def wanted(self) -> list[Answers]:
        """The shapes that a waiting pod has."""
        return [answers for answers in self._kept if answers.wanted]
