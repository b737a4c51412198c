"""What each node says to a pod, the closest node first: the survey that every explanation begins with.

Pure. All that is decided here is GPU memory. With many nodes a survey takes long, so it is made in short steps.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from gpushare.core.explain import report
from gpushare.core.facts.model import PodFacts, Refusal, Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement import cost
from gpushare.core.placement.cost import Budget
from gpushare.core.placement.fit import NO_SHARED_GPU, OTHER_NODE, Question
from gpushare.core.steps import Steps, finish

STEP_NODES = 200  # in one step: a few milliseconds

T = TypeVar("T")
Answers = list[tuple[str, Refusal | None]]
"""By node, the closest first: its refusal, or None if the pod fits there."""
Row = tuple[tuple[bool, bool, bool, bool, bool, bool, int, str], Refusal | None]


def survey(ledger: Ledger, pod: PodFacts, among: Collection[str] | None = None) -> Answers:
    """What each node with a GPU says to a pod. `among`: the only nodes that are asked."""
    return finish(surveying(ledger, pod, among, cost.UNHURRIED_LOOKS))


def surveying(ledger: Ledger, pod: PodFacts, among: Collection[str] | None, looks: int) -> Steps[Answers]:
    """The same in short steps. `looks`: what one step may cost."""
    rows: list[Row] = []
    for part in parts(list(ledger.node_names()) if among is None else list(among)):
        rows += _rows(ledger, pod, part, Budget(looks))
        yield
    rows.sort(key=lambda row: row[0])
    return [(key[-1], refusal) for key, refusal in rows if ledger.node(key[-1]) is not None]


def verdict_of(answers: Answers) -> tuple[str, Refusal | None]:
    """The verdict, and the refusal that stands for all of them: that of the closest node."""
    if not answers:
        return "never", NO_SHARED_GPU
    first = answers[0][1]
    if first is None:
        return "fits", None
    return "never" if first.forever else "refused", first


def largest_need(request: Request) -> int:
    """The most units that this request needs on one GPU; 0 if it asks for whole GPUs only."""
    return max(share.each for share in request.shares)


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The nodes of each step."""
    for start in range(0, len(items), STEP_NODES):
        yield items[start : start + STEP_NODES]


def _rows(ledger: Ledger, pod: PodFacts, among: Collection[str], budget: Budget) -> list[Row]:
    """The answers of some nodes, with a key that sorts the closest first. A node that only lacks a healthy GPU is
    closer than a full one; then it counts how much is missing. A node that the pod does not want is the farthest."""
    assert isinstance(pod.request, Request)
    question, need, rows = Question(pod.request), largest_need(pod.request), []
    states = {name: ledger.node(name) for name in among}
    rooms = {name: state.room for name, state in states.items() if state is not None and state.room is not None}
    for name, refusal in ledger.judged(pod.request, pod, rooms, budget):
        room = rooms[name]
        never = refusal is not None and refusal.forever
        off_limits = never and question.off_limits(room.facts) is not None  # not close, however much is free
        too_small = never and refusal is not None and refusal.code not in report.ROOM  # for one container alone
        full = refusal is None or refusal.code != "NoHealthyGpu"
        short = need - (room.rising[-1] if room.rising else 0)
        unwanted = refusal is OTHER_NODE
        rows.append(((refusal is not None, unwanted, never, off_limits, too_small, full, short, name), refusal))
    return rows
