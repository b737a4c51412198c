"""The explanation of pods that exist only in a file: `why -f` shows it, and so does every page that asks "what if".

Pure but for `admitted`, which asks what the API server will make of each pod. `trial` places the pods one by one. Where
two pods are possible, both are tried.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from gpushare.core.explain import report, verdict, views
from gpushare.core.explain.report import Explanation, Otherwise, Outcome
from gpushare.core.facts import request
from gpushare.core.facts.model import Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.view import sold
from gpushare.view.why import explanation, pod_details
from gpushare.view.why.evidence import Evidence
from gpushare.view.why.files.admitted import Admission, Admitted
from gpushare.view.why.files.manifests import Item
from gpushare.view.why.text import page
from gpushare.view.why.text.page import Style

TWO_ANSWERS = (
    "it is not known whether gpushare's admission policy will change {name}. This answer is right {this}; "
    "{that}: {other} For one answer: {way}"
)
IF_NOT, IF_SO = "if it does not", "if it does"


class Trying(Protocol):
    """Gathers the evidence about an item whose pods are admitted so, and can forget the last item."""

    def place(self, item: Item, admitted: pod_details.Pod) -> Evidence: ...

    def take_back(self) -> None: ...


TellBoth = Callable[[str, str, Explanation], None]


def explain(
    items: Iterable[Item], admission: Admission, trial: Trying, note: Callable[[str], None], style: Style
) -> list[Explanation]:
    """The explanation of each item, in their order. `note` gets the other answer, where two are possible; `style` is
    how it is written."""

    def tell_both(this: str, that: str, other: Explanation) -> None:
        line = page.text(other, style).partition("\n")[0]
        way = admission.way(other.pod.namespace)
        note(TWO_ANSWERS.format(name=other.pod.name, this=this, that=that, other=line, way=way))

    return [
        _explain(item, admission.of(item), trial, tell_both) if asks(item) else explain_alone(item) for item in items
    ]


def asks(item: Item) -> bool:
    """Whether the cluster has anything to do with the answer."""
    parsed = request.parse(item.pod, None)
    return isinstance(parsed, Request) or (parsed is None and bool(sold.asked(item.pod)))


def explain_alone(item: Item) -> Explanation:
    part = verdict.explain(Ledger(), request.facts(item.pod, None))
    return explanation.build(Evidence(item.pod, part, kind=item.shown_kind))


def _explain(item: Item, admitted: Admitted, trial: Trying, tell_both: TellBoth) -> Explanation:
    known = _not_created(item, admitted) if admitted.refused else trial.place(item, admitted.pod)
    otherwise = None
    if admitted.other is not None:
        trial.take_back()
        known, otherwise = _worse(item, admitted.pod, admitted.other, known, trial, tell_both)
    return explanation.build(msgspec.structs.replace(known, admission=admitted.how, otherwise=otherwise))


def _worse(
    item: Item, pod: pod_details.Pod, other: pod_details.Pod, known: Evidence, trial: Trying, tell_both: TellBoth
) -> tuple[Evidence, Otherwise]:
    """Two pods are possible, and neither is more likely: the worse answer counts, because it promises nothing that may
    not come true, and the user reads both. `known`: about the first, which is not placed any more."""
    known_of_other = trial.place(item, other)
    first, second = explanation.build(known), explanation.build(known_of_other)
    if _badness(second) > _badness(first):
        tell_both(IF_SO, IF_NOT, first)
        return known_of_other, _otherwise(first)
    tell_both(IF_NOT, IF_SO, second)
    trial.take_back()
    return trial.place(item, pod), _otherwise(second)


def _otherwise(other: Explanation) -> Otherwise:
    return Otherwise(other.verdict, other.code, other.message)


def _badness(answer: Explanation) -> tuple[int, int]:
    missing = answer.replicas.asked - answer.replicas.fit if answer.replicas is not None else 0
    return report.VERDICTS.index(answer.verdict), missing


def _not_created(item: Item, admitted: Admitted) -> Evidence:
    """The API server would refuse the pod."""
    outcome = Outcome(
        "invalid" if admitted.invalid else "refused", report.API_SERVER, report.NOT_ADMITTED, admitted.refused
    )
    return Evidence(item.pod, views.gpushare_part(request.facts(item.pod, None), outcome), kind=item.shown_kind)
