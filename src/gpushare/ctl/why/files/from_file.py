"""`why -f`: the explanation of each thing in a file, or on stdin.

The file and the cluster are read once. `admitted` finds out what the API server will make of each pod, and `trial`
places them one by one. A running extender can be asked about a single pod only: it places nothing for us.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from gpushare.core.explain import report, verdict, views
from gpushare.core.explain.report import Explanation, Otherwise, Outcome
from gpushare.core.facts import request
from gpushare.core.facts.model import Request
from gpushare.core.ledger.ledger import Ledger
from gpushare.ctl.why import by_count, evidence, explanation, placing, pod_details
from gpushare.ctl.why.evidence import Evidence
from gpushare.ctl.why.files import manifests
from gpushare.ctl.why.files.admitted import Admission, Admitted
from gpushare.ctl.why.files.manifests import Item
from gpushare.ctl.why.files.trial import Trial
from gpushare.ctl.why.scheduler_checks import SchedulerChecks
from gpushare.ctl.why.text import page
from gpushare.ctl.why.text.page import Style
from gpushare.obs.errors import UserError
from gpushare.view import snapshot, sold, unhealthy, vitals
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Drafting

if TYPE_CHECKING:
    from gpushare.ctl.why.extender_client import Extender

STDIN = "stdin"
MOST_BYTES = 1 << 20  # of one file: manifests are much smaller
TOO_LARGE = "gpushare why reads at most 1 MiB of a file or of stdin"
TWO_ANSWERS = (
    "it is not known whether gpushare's admission policy will change {name}. This answer is right {this}; "
    "{that}: {other} For one answer: {way}"
)
IF_NOT, IF_SO = "if it does not", "if it does"


class File(msgspec.Struct, frozen=True):
    name: str  # as it is shown
    items: list[Item]
    notes: list[str]
    namespaces: dict[str, dict[str, str]]  # that the file itself makes, and their labels


class Trying(Protocol):
    """Gathers the evidence about an item whose pods are admitted so, and can forget the last item."""

    def place(self, item: Item, admitted: pod_details.Pod) -> Evidence: ...

    def take_back(self) -> None: ...


TellBoth = Callable[[str, str, Explanation], None]


def read(filename: str, namespace: str, stdin: BinaryIO) -> File:
    """The pods of a file; "-" is stdin."""
    name = STDIN if filename == "-" else filename
    try:
        start = _start(filename, stdin)
        if len(start) > MOST_BYTES:
            raise UserError(
                f"{name} is larger than 1 MiB", TOO_LARGE, "-f FILE with the pods alone, or in several files"
            )
        text = start.decode()
    except UnicodeDecodeError:
        raise UserError(f"{name} is no text", "it is not UTF-8", "a file of YAML or JSON, or - for stdin") from None
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise UserError(f"{name} cannot be read", why, "-f FILE, or -f - for stdin") from None
    manifest = manifests.read(text, name, namespace)
    return File(name, manifest.items, manifest.notes, manifest.namespaces)


def _start(filename: str, stdin: BinaryIO) -> bytes:
    """All of it, or one byte more than is allowed: what never ends, like /dev/zero, is not read any further."""
    if filename == "-":
        with contextlib.suppress(OSError):  # it is not a file
            os.set_blocking(stdin.fileno(), True)  # else the part that is there already would be taken for all of it
        return stdin.read(MOST_BYTES + 1)
    with Path(filename).open("rb") as file:
        return file.read(MOST_BYTES + 1)


def explain(
    file: File,
    source: Drafting,
    extender: "Extender | None",
    now: float,
    note: Callable[[str], None],
    policy: str = "",
) -> list[Explanation]:
    """The explanation of each item, in the order of the file."""
    if not any(map(_asks, file.items)):
        return [_explain_alone(item) for item in file.items]  # the same whatever the cluster is like
    if extender is not None and not _is_one_pod(file):
        raise extender.cannot_place(file.name)
    asked = [] if extender is not None else [request.facts(item.pod, None) for item in file.items]
    by_points = any(placing.gives_points(facts, policy) for facts in asked)
    reading = vitals.Reading(source) if by_points else None
    cluster = snapshot.read(source, now)
    by = placing.prepared(cluster, reading, policy, packs=any(placing.packs(facts, policy) for facts in asked))
    admission = Admission(source, cluster.ledger, file.namespaces, note)
    if extender is None:
        unhealthy.mark(cluster, source)
    trial: Trying = Trial(cluster, by) if extender is None else _ByExtender(extender, cluster)

    def tell_both(this: str, that: str, other: Explanation) -> None:
        line = page.text(other, Style(now, file=file.name)).partition("\n")[0]
        way = admission.way(other.pod.namespace)
        note(TWO_ANSWERS.format(name=other.pod.name, this=this, that=that, other=line, way=way))

    return [
        _explain(item, admission.of(item), trial, tell_both) if _asks(item) else _explain_alone(item)
        for item in file.items
    ]


def _asks(item: Item) -> bool:
    parsed = request.parse(item.pod, None)
    return isinstance(parsed, Request) or (parsed is None and bool(sold.asked(item.pod)))


def _is_one_pod(file: File) -> bool:
    item = file.items[0]
    return len(file.items) == 1 and item.replicas == 1 and not item.every_node


def _explain_alone(item: Item) -> Explanation:
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


class _ByExtender:
    """A running extender's answers. It places nothing, so there is nothing to take back."""

    def __init__(self, extender: "Extender", cluster: Snapshot) -> None:
        self._extender, self._cluster = extender, cluster

    def place(self, item: Item, admitted: pod_details.Pod) -> Evidence:
        facts = request.facts(admitted, None)
        if facts.request is None and sold.asked(admitted):  # it knows nothing of what is sold by count
            known = by_count.gather(self._cluster, SchedulerChecks(self._cluster), admitted)
        else:
            answer = self._extender.explain_draft(admitted)
            known = evidence.from_extender(self._cluster, admitted, facts, answer)
        return msgspec.structs.replace(known, kind=item.shown_kind)

    def take_back(self) -> None:
        pass
