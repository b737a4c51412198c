"""`why -f`: a file, or stdin, and what would become of each thing in it.

Called by `why`. Reads the file, asks for the priority of each pod that names a class, reads the cluster once, and has
`drafts` place the pods one by one. A running extender can be asked about a single pod only: it places nothing for us.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO
from urllib.parse import quote

import msgspec

from gpushare.core import api, explain, request
from gpushare.core.explanation import Explanation
from gpushare.core.ledger import Ledger
from gpushare.core.model import Request
from gpushare.ctl import judge, manifests, seen, sick, snapshot
from gpushare.ctl.drafts import Drafts
from gpushare.ctl.judge import COMPUTE_HERE
from gpushare.ctl.manifests import Item
from gpushare.ctl.rest import Rest
from gpushare.ctl.source import Forbidden, NotFound, Source
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError

if TYPE_CHECKING:
    from gpushare.ctl.told import Extender

STDIN = "stdin"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses/"
NO_CLASS = "there is no PriorityClass {name}: counted as priority 0, and the API server will refuse the pod."
UNREADABLE_CLASS = "PriorityClass {name} may not be read: counted as priority 0."


class Filed(msgspec.Struct):
    file: str  # as it is shown
    items: list[Item]
    notes: list[str]


class _PriorityClass(api.Struct):
    value: int = 0
    preemption_policy: str | None = None


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
    return Filed(file, found.items, found.notes)


def answers(
    filed: Filed, source: Source, extender: "Extender | None", now: float, note: Callable[[str], None]
) -> list[Explanation]:
    """What would become of each item, in the order of the file."""
    if all(not isinstance(request.parse(item.pod, None), Request) for item in filed.items):
        return [_alone(item) for item in filed.items]  # whatever the cluster is like
    for item in filed.items:
        _set_priority(item, source, note)
    if extender is not None:
        return [_told(filed, extender, source, now)]
    world = snapshot.read(source, now)
    sick.mark(world, source)
    drafts = Drafts(world)
    return [drafts.place(item) for item in filed.items]


def _alone(item: Item) -> Explanation:
    said = judge.about(explain.explain(Ledger(), request.facts(item.pod, None)), item.pod)
    said.kind = None if item.is_pod else item.kind
    return said


def _told(filed: Filed, extender: "Extender", source: Source, now: float) -> Explanation:
    item = filed.items[0]
    if len(filed.items) > 1 or item.replicas != 1 or item.every_node:
        why = "it is asked about one pod at a time, and places none"
        raise UserError(f"--extender cannot place what is in {filed.file}", why, COMPUTE_HERE)
    said = extender.explain_draft(item.pod)
    if said is None:
        raise UserError(
            "the extender has no answer", "it does not take pods that do not exist", COMPUTE_HERE, CLUSTER_NOT_ASKED
        )
    world = snapshot.read(source, now)
    keeping = Rest(world).keeping(item.pod, request.facts(item.pod, None))
    said = judge.about(judge.with_rest(said, world, keeping), item.pod)
    said.kind = None if item.is_pod else item.kind
    return said


def _set_priority(item: Item, source: Source, note: Callable[[str], None]) -> None:
    """As the API server will: from the class that a pod names."""
    name = item.priority_class
    if not name or item.pod.spec.priority is not None:
        return
    path = CLASSES + quote(name, safe="")
    try:
        found = seen.decode(source.get(path), _PriorityClass, path)
    except NotFound:
        note(NO_CLASS.format(name=name))
    except Forbidden:
        note(UNREADABLE_CLASS.format(name=name))
    else:
        item.pod.spec.priority = found.value
        item.pod.spec.preemption_policy = item.pod.spec.preemption_policy or found.preemption_policy
