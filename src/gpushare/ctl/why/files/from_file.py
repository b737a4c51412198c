"""`why -f`: a file, or stdin, and what would become of each thing in it.

Reads the file and the cluster once, has `admitted` find out what the API server will make of each pod, and has `drafts`
place them one by one. A running extender can be asked about a single pod only: it places nothing for us.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

import msgspec

from gpushare.core.explain import report, verdict
from gpushare.core.explain.report import Explanation, Otherwise
from gpushare.core.facts import request
from gpushare.core.facts.model import Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.ctl.why import judgement, pod_details
from gpushare.ctl.why.files import manifests
from gpushare.ctl.why.files.admitted import Admission, Admitted
from gpushare.ctl.why.files.manifests import Item
from gpushare.ctl.why.files.trial import Drafts
from gpushare.ctl.why.judgement import COMPUTE_HERE
from gpushare.ctl.why.scheduler_checks import Rest
from gpushare.ctl.why.text import page
from gpushare.ctl.why.text.page import Style
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view import snapshot, unhealthy
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Drafting

if TYPE_CHECKING:
    from gpushare.ctl.why.extender_client import Extender

STDIN = "stdin"
TWO_ANSWERS = (
    "whether gpushare's admission policy will change {name} cannot be known here. The answer is what happens {this}; "
    "{that}: {other} For one answer: {way}"
)
IF_NOT, IF_SO = "if it does not", "if it does"


class Filed(msgspec.Struct):
    file: str  # as it is shown
    items: list[Item]
    notes: list[str]
    namespaces: dict[str, dict[str, str]]  # those that come with them, and their labels


class Placing(Protocol):
    """Says what becomes of an item whose pods are admitted so, and can forget the last one."""

    def place(self, item: Item, admitted: pod_details.Pod) -> Explanation: ...

    def take_back(self) -> None: ...


def read(filename: str, namespace: str, stdin: TextIO) -> Filed:
    """The pods of a file; "-" is stdin."""
    file = STDIN if filename == "-" else filename
    try:
        text = stdin.read() if filename == "-" else Path(filename).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{file} is no text", "it is not UTF-8", "a file of YAML or JSON, or - for stdin") from None
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise UserError(f"{file} cannot be read", why, "-f FILE, or -f - for stdin") from None
    found = manifests.read(text, file, namespace)
    return Filed(file, found.items, found.notes, found.namespaces)


def answers(
    filed: Filed, source: Drafting, extender: "Extender | None", now: float, note: Callable[[str], None]
) -> list[Explanation]:
    """What would become of each item, in the order of the file."""
    if not any(map(_asks, filed.items)):
        return [_alone(item) for item in filed.items]  # whatever the cluster is like
    if extender is not None:
        _check_single(filed)
    world = snapshot.read(source, now)
    admission = Admission(source, world.ledger, filed.namespaces, note)
    if extender is None:
        unhealthy.mark(world, source)
    placing: Placing = Drafts(world) if extender is None else _Told(extender, world)

    def two_answers(this: str, that: str, other: Explanation) -> None:
        line = page.text(other, Style(now, file=filed.file)).partition("\n")[0]
        way = admission.way(other.pod.namespace)
        note(TWO_ANSWERS.format(name=other.pod.name, this=this, that=that, other=line, way=way))

    return [
        _judged(item, admission.of(item), placing, two_answers) if _asks(item) else _alone(item) for item in filed.items
    ]


def _asks(item: Item) -> bool:
    return isinstance(request.parse(item.pod, None), Request)


def _alone(item: Item) -> Explanation:
    return _about(item, item.pod, verdict.explain(Ledger(), request.facts(item.pod, None)))


def _about(item: Item, pod: pod_details.Pod, said: Explanation) -> Explanation:
    said = judgement.about(said, pod)
    said.kind = None if item.is_pod else item.kind
    return said


def _judged(
    item: Item, admitted: Admitted, placing: Placing, two_answers: Callable[[str, str, Explanation], None]
) -> Explanation:
    if admitted.refused:
        said = _about(item, item.pod, _not_created(item.pod, admitted))
    else:
        said = placing.place(item, admitted.pod)
    if admitted.other is not None:
        placing.take_back()
        other = placing.place(item, admitted.other)
        # Neither is more likely. The worse one promises nothing that does not come true, and both are told.
        if _how_bad(other) > _how_bad(said):
            two_answers(IF_SO, IF_NOT, said)
            said, other = other, said
        else:
            two_answers(IF_NOT, IF_SO, other)
            placing.take_back()
            said = placing.place(item, admitted.pod)
        said.otherwise = Otherwise(other.verdict, other.code, other.message)
    said.admission = admitted.how
    return said


def _not_created(pod: pod_details.Pod, admitted: Admitted) -> Explanation:
    outcome, facts = "invalid" if admitted.invalid else "refused", request.facts(pod, None)
    return verdict.answer(facts, outcome, report.NOT_ADMITTED, admitted.refused, owner=report.API_SERVER)


def _how_bad(said: Explanation) -> tuple[int, int]:
    missing = said.replicas.asked - said.replicas.fit if said.replicas is not None else 0
    return report.VERDICTS.index(said.verdict), missing


def _check_single(filed: Filed) -> None:
    item = filed.items[0]
    if len(filed.items) > 1 or item.replicas != 1 or item.every_node:
        why = "it is asked about one pod at a time, and places none"
        raise UserError(f"--extender cannot place what is in {filed.file}", why, COMPUTE_HERE)


class _Told:
    """A running extender's answers. It places nothing, so nothing is taken back."""

    def __init__(self, extender: "Extender", world: Snapshot) -> None:
        self._extender, self._world = extender, world

    def place(self, item: Item, admitted: pod_details.Pod) -> Explanation:
        said = self._extender.explain_draft(admitted)
        if said is None:
            raise UserError(
                "the extender has no answer", "it does not take pods that do not exist", COMPUTE_HERE, CLUSTER_NOT_ASKED
            )
        keeping = Rest(self._world).keeping(admitted, request.facts(admitted, None))
        return _about(item, admitted, judgement.with_rest(said, self._world, keeping))

    def take_back(self) -> None:
        pass
