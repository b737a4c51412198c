"""`why -f`: the explanation of each thing in a file, or on stdin.

The file and the cluster are read once. `admitted` finds out what the API server will make of each pod, and `trial`
places them one by one. A running extender can be asked about a single pod only: it places nothing for us.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from gpushare.core.explain.report import Explanation
from gpushare.core.facts import request
from gpushare.obs.errors import UserError
from gpushare.view import snapshot, sold, unhealthy, vitals
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Drafting
from gpushare.view.why import by_count, evidence, placing, pod_details
from gpushare.view.why.evidence import Evidence
from gpushare.view.why.files import drafts, manifests
from gpushare.view.why.files.admitted import Admission
from gpushare.view.why.files.drafts import Trying
from gpushare.view.why.files.manifests import Item
from gpushare.view.why.files.trial import Trial
from gpushare.view.why.scheduler_checks import SchedulerChecks
from gpushare.view.why.text.page import Style

if TYPE_CHECKING:
    from gpushare.ctl.why.extender_client import Extender

STDIN = "stdin"
MOST_BYTES = 1 << 20  # of one file: manifests are much smaller
TOO_LARGE = "gpushare why reads at most 1 MiB of a file or of stdin"


class File(msgspec.Struct, frozen=True):
    name: str  # as it is shown
    items: list[Item]
    notes: list[str]
    namespaces: dict[str, dict[str, str]]  # that the file itself makes, and their labels


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
    if not any(map(drafts.asks, file.items)):
        return [drafts.explain_alone(item) for item in file.items]  # the same whatever the cluster is like
    if extender is not None and not _is_one_pod(file):
        raise extender.cannot_place(file.name)
    asked = [] if extender is not None else [request.facts(item.pod, None) for item in file.items]
    by_points = any(placing.gives_points(facts, policy) for facts in asked)
    reading = vitals.Reading(source) if by_points else None
    cluster = snapshot.read(source, now)
    found = reading.found() if reading is not None else None
    by = placing.prepared(cluster, found, policy, packs=any(placing.packs(facts, policy) for facts in asked))
    admission = Admission(source, cluster.ledger, file.namespaces, note, source)
    if extender is None:
        unhealthy.mark(cluster, source)
    trial: Trying = Trial(cluster, by) if extender is None else _ByExtender(extender, cluster)
    return drafts.explain(file.items, admission, trial, note, Style(now, file=file.name))


def _is_one_pod(file: File) -> bool:
    item = file.items[0]
    return len(file.items) == 1 and item.replicas == 1 and not item.every_node


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
