"""Answers kept for the shapes people really ask, so that a scheduler's call is a look-up.

A request of one share needs nothing of this: one number per node decides it. Any other shape has a table
`node -> refusal or None`, brought up to date when it is asked by looking again at the nodes that changed since. A
change costs one append, however many shapes are kept. Each namespace keeps its own few, so that no tenant can crowd
out another's. Owned by the ledger.
"""

from collections import OrderedDict
from collections.abc import Callable

from gpushare.core.fit import Question
from gpushare.core.model import Refusal, Request, Shape

PER_NAMESPACE = 32
IN_ALL = 512  # tables hold an entry per node; this bounds them at a few hundred MB on the largest clusters

Evaluate = Callable[[Question, str], Refusal | None]


class Answers:
    """What every node says to one shape, as of `seen` changes."""

    def __init__(self, request: Request) -> None:
        self.question = Question(request)
        self.refusals: dict[str, Refusal | None] = {}
        self.ranks: dict[str, dict[str, int | None]] = {}  # by policy; filled when asked
        self.seen = -1


class Shapes:
    def __init__(self) -> None:
        self._kept: dict[str, OrderedDict[Shape, Answers]] = {}
        self._changes: list[str] = []
        self._forgotten = 0  # changes dropped from the front of the list

    def touch(self, node: str, nodes: int) -> None:
        """A node changed. The list is cut once it names every node several times over."""
        self._changes.append(node)
        if len(self._changes) > 4 * nodes + 1024:
            half = len(self._changes) // 2
            del self._changes[:half]
            self._forgotten += half

    def ask(self, namespace: str, request: Request, nodes: dict[str, object], evaluate: Evaluate) -> Answers:
        """The up-to-date answers to a request."""
        answers = self._find(namespace, request)
        if answers.seen < self._forgotten:
            answers.refusals = {node: evaluate(answers.question, node) for node in nodes}
            answers.ranks.clear()
        else:
            for node in set(self._changes[answers.seen - self._forgotten :]):
                answers.refusals.pop(node, None)
                if node in nodes:
                    answers.refusals[node] = evaluate(answers.question, node)
                for ranks in answers.ranks.values():
                    ranks.pop(node, None)
        answers.seen = self._forgotten + len(self._changes)
        return answers

    def _find(self, namespace: str, request: Request) -> Answers:
        kept = self._kept.setdefault(namespace, OrderedDict())
        shape = request.shape
        answers = kept.get(shape)
        if answers is None:
            answers = kept[shape] = Answers(request)
            if len(kept) > PER_NAMESPACE:
                kept.popitem(last=False)
            elif sum(map(len, self._kept.values())) > IN_ALL:
                fullest = max(self._kept.values(), key=len)
                fullest.popitem(last=False)
                self._kept = {name: table for name, table in self._kept.items() if table}
        else:
            kept.move_to_end(shape)
        return answers
