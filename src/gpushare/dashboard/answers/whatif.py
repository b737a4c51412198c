"""What if these pods came? A text of YAML is placed on a ledger of its own, and nothing is sent to Kubernetes.

No I/O but what `source` reads: labels of namespaces, admission policies and PriorityClasses. Without it the nodes' way
of pinning decides what admission would do, and where that is not known both answers are told. A text that is no good
is a `UserError` with one sentence.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from gpushare.core.explain.report import NO_REQUEST, Explanation
from gpushare.core.facts import names, request
from gpushare.core.facts.policies import POLICIES
from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.answers.body import Body, mib
from gpushare.obs.errors import UserError
from gpushare.view.snapshot import Snapshot
from gpushare.view.source import Forbidden, Source
from gpushare.view.why import limited_rights, placing
from gpushare.view.why.files import drafts, manifests
from gpushare.view.why.files.admitted import BY_DRY_RUN, Admission
from gpushare.view.why.files.manifests import Item
from gpushare.view.why.files.trial import Place, Trial
from gpushare.view.why.text import page
from gpushare.view.why.text.page import Style

TEXT = "the text"  # what it is called in sentences about it
PASTED = "pasted"  # and where a pod comes from, behind its name
MOST_BYTES = 256 << 10
MOST_VALUES = 20_000  # of YAML: to read so many takes a second
MOST_ITEMS = 20  # each answer says something about every node
MOST_REPLICAS = 1000  # of all items together: each is placed by itself
COPIES = "ReplicaSet"  # what several copies of a pod are placed as
SCHEDULER = "taints, selector, CPU and memory are checked; affinity to other pods and volumes are not"
ONE_PER_NODE = "DaemonSet {name} has one pod on each node, whatever number of replicas is asked for."

Gpu = tuple[str, int]
"""Node and index."""


class Question(msgspec.Struct, frozen=True):
    """`replicas`: instead of those that are written; None: as written. `policy`: the same; empty: as written."""

    yaml: str
    replicas: int | None = None
    policy: str = ""
    namespace: str = "default"  # of pods that name none


class Tried(msgspec.Struct, frozen=True):
    """What came out, with all names."""

    items: list[Item]
    explanations: list[Explanation]
    places: list[list[Place]]  # of each item
    gpus: list["TouchedGpu"]
    notes: list[str]
    now: float


class PlaceRow(Body):
    node: str
    gpu: int | None  # None: several, or sold by count
    count: int


class ItemRow(Body):
    name: str
    namespace: str
    kind: str
    asked: int
    fit: int
    places: list[PlaceRow]
    explanation: Explanation
    text: str
    ways: list[str]


class TouchedGpu(Body):
    """A GPU that one of the pods would get. `before` and `after`: MiB that are given out."""

    node: str
    index: int
    total: int
    before: int
    after: int


class WhatIfPage(Body):
    items: list[ItemRow]
    gpus: list[TouchedGpu]
    notes: list[str]
    scheduler: str = SCHEDULER


def trying(question: Question, cluster: Snapshot, source: Source | None) -> Tried:
    """`cluster` has a ledger of its own, which is changed."""
    manifest = _read(question)
    notes = list(manifest.notes)
    items = [_changed(item, question, notes) for item in manifest.items]
    _check(items)
    by = _placing(cluster, items, question.policy)
    before = _granted(cluster)
    trial, reader = Trial(cluster, by), source or _Nothing()
    admission = Admission(reader, cluster.ledger, manifest.namespaces, notes.append, None)
    style, explanations, places = Style(cluster.now, file=PASTED), list[Explanation](), list[list[Place]]()
    for item in items:
        trial.places = []
        explanations += drafts.explain([item], admission, trial, notes.append, style)
        places.append(trial.places)
    return Tried(items, explanations, places, _touched(cluster, before), list(dict.fromkeys(notes)), cluster.now)


def namespaces(tried: Tried) -> frozenset[str]:
    """Those of the pods that the answer names, besides those of the text."""
    return frozenset(name for one in tried.explanations for name in limited_rights.named(one))


def answer(tried: Tried, allowed: Allowed) -> WhatIfPage:
    rows = zip(tried.items, tried.explanations, tried.places, strict=True)
    return WhatIfPage([_row(*row, tried.now, allowed) for row in rows], tried.gpus, tried.notes)


def _read(question: Question) -> manifests.Manifest:
    if len(question.yaml.encode(errors="replace")) > MOST_BYTES:
        raise UserError(f"{TEXT} is larger than 256 KiB", "so much is not tried here", "paste the pods alone")
    if question.policy and question.policy not in POLICIES:
        raise UserError(f'no policy "{question.policy[:60]}"', f"there are {', '.join(POLICIES)}", "one of these")
    if question.replicas is not None and not 0 <= question.replicas <= MOST_REPLICAS:
        raise _too_many(question.replicas)
    try:
        return manifests.read(question.yaml, TEXT, question.namespace or "default", MOST_VALUES)
    except UserError as error:
        raise UserError(error.what, error.why, error.way.replace(f"-f {TEXT}", "-f FILE")) from None


def _check(items: Sequence[Item]) -> None:
    """What is too much for one answer."""
    if len(items) > MOST_ITEMS:
        why, way = f"at most {MOST_ITEMS} are tried at once", "paste fewer of them, or gpushare why -f FILE"
        raise UserError(f"{TEXT} has {len(items):,} objects with pods", why, way)
    if (replicas := sum(item.replicas for item in items)) > MOST_REPLICAS:
        raise _too_many(replicas)


def _too_many(replicas: int) -> UserError:
    number = f"{replicas:,}" if abs(replicas) < 10**12 else "too many"
    why = f"0 to {MOST_REPLICAS:,} are placed one by one here"
    return UserError(f"{number} replicas are asked for", why, "fewer replicas, or gpushare why -f FILE")


def _changed(item: Item, question: Question, notes: list[str]) -> Item:
    """With the replicas and the policy of the question."""
    if question.policy:
        meta = item.pod.metadata
        kept = {key: value for key, value in (meta.annotations or {}).items() if key != names.POLICY}
        meta.annotations = kept
    if question.replicas is None:
        return item
    if item.every_node:
        notes.append(ONE_PER_NODE.format(name=item.name))
        return item
    kind = COPIES if item.is_pod and question.replicas != 1 else item.kind
    return msgspec.structs.replace(item, kind=kind, replicas=question.replicas)


def _placing(cluster: Snapshot, items: Sequence[Item], policy: str) -> placing.Placing:
    asked = [request.facts(item.pod, None) for item in items]
    by_points = any(placing.gives_points(facts, policy) for facts in asked)
    packs = any(placing.packs(facts, policy) for facts in asked)
    return placing.prepared(cluster, cluster.doing if by_points else None, policy, packs=packs)


def _granted(cluster: Snapshot) -> dict[Gpu, tuple[int, int]]:
    """Total and what is given out of each GPU, in MiB."""
    rooms = [state.room for state in cluster.ledger.nodes() if state.room is not None]
    return {
        (room.facts.name, gpu.index): (gpu.total * mib(room.facts.unit), (gpu.total - free) * mib(room.facts.unit))
        for room in rooms
        for gpu, free in zip(room.facts.gpus, room.free, strict=True)
    }


def _touched(cluster: Snapshot, before: dict[Gpu, tuple[int, int]]) -> list[TouchedGpu]:
    after = _granted(cluster)
    return [
        TouchedGpu(node, index, total, granted, after[node, index][1])
        for (node, index), (total, granted) in sorted(before.items())
        if after[node, index][1] != granted
    ]


def _row(item: Item, explanation: Explanation, places: Sequence[Place], now: float, allowed: Allowed) -> ItemRow:
    shown = explanation if allowed is None else limited_rights.redacted(explanation, allowed)
    asked = shown.replicas.asked if shown.replicas is not None else item.replicas
    return ItemRow(
        name=item.name,
        namespace=item.pod.metadata.namespace,
        kind=item.kind,
        asked=asked,
        fit=shown.replicas.fit if shown.replicas is not None else asked if shown.code == NO_REQUEST else len(places),
        places=[PlaceRow(node, gpu, count) for (node, gpu), count in Counter(places).items()],
        explanation=shown,
        text=page.text(shown, Style(now, file=PASTED)),
        ways=page.sentences(shown, exists=False),
    )


class _Nothing:
    """A source from which nothing may be read."""

    def get(self, path: str) -> bytes:
        raise Forbidden(f"not read: {path}", "the dashboard reads it only where it may", BY_DRY_RUN)
