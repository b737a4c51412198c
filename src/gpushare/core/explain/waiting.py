"""How many pods wait, since when, and for which reason: for metrics.

Pure but for what it remembers. The reason of a pod is what the closest node says that it may use (`survey`). To ask
all nodes takes long, so pods that ask the same are asked about once, and each time only as many as a number of nodes
allows: those first that were never asked about, then those whose answer is oldest.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from gpushare.core.explain import report, survey
from gpushare.core.facts.model import Kind, PodFacts, Request, Rules
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import CALL_LOOKS
from gpushare.core.scheduling.patience import moment
from gpushare.core.steps import Steps

MOST_ANSWERS: Final = 25_000  # of nodes, in one count
STEP_PODS: Final = 100  # a pod may have many containers
STEP_GROUPS: Final = 1_000
NOT_LOOKED_AT: Final = "NotLookedAt"  # there are too many different pods: they have no answer yet

Alike = bytes  # a digest: equal for pods that ask the same
Allowed = Callable[[PodFacts], Collection[str] | None]


class Waiting(NamedTuple):
    pods: int
    since: float  # when the first of them began, in seconds since 1970


class _Group:
    """Pods that ask the same. `code`: the reason, and in which count it was found."""

    __slots__ = ("code", "counted", "pod", "waiting")

    def __init__(self, pod: PodFacts, waiting: Waiting, known: "_Group | None") -> None:
        self.pod, self.waiting = pod, waiting
        self.code: str = known.code if known is not None else NOT_LOOKED_AT
        self.counted: int = known.counted if known is not None else 0


class WaitingPods:
    def __init__(self) -> None:
        self._groups: dict[Alike, _Group] = {}  # of the last count
        self._counts = 0

    def counting(
        self, ledger: Ledger, pending: Collection[PodFacts], allowed: Allowed, now: float
    ) -> Steps[Mapping[str, Waiting]]:
        """By code. `pending`: pods that are not bound; those that a scheduler has refused wait. `allowed`: the nodes
        that a pod may use, GPUs aside; None: all."""
        result: dict[str, Waiting] = {}
        groups: dict[Alike, _Group] = {}
        for number, pod in enumerate(list(pending)):
            if number % STEP_PODS == 0:
                yield
            if not pod.unschedulable or ledger.holding(pod.uid) is not None or pod.request is None:
                continue
            one = Waiting(1, min(moment(pod.waits_since or pod.created, now), now))
            if isinstance(pod.request, Request):
                self._add(groups, _alike(pod.request, pod.rules), pod, one)
            else:
                result[pod.request.code] = _sum(one, result.get(pod.request.code))
        self._groups = groups
        yield from self._ask(ledger, groups.values(), allowed)
        for number, group in enumerate(groups.values()):
            if number % STEP_GROUPS == 0:
                yield
            result[group.code] = _sum(group.waiting, result.get(group.code))
        return result

    def _add(self, groups: dict[Alike, _Group], alike: Alike, pod: PodFacts, one: Waiting) -> None:
        group = groups.get(alike)
        if group is None:
            groups[alike] = _Group(pod, one, self._groups.get(alike))
        else:
            group.waiting = _sum(one, group.waiting)

    def _ask(self, ledger: Ledger, groups: Collection[_Group], allowed: Allowed) -> Steps[None]:
        self._counts += 1
        most = max(MOST_ANSWERS // max(len(ledger.node_names()), 1), 1)
        for group in sorted(groups, key=lambda group: group.counted)[:most]:
            among = allowed(group.pod)
            yield
            answers = yield from survey.surveying(ledger, group.pod, among, CALL_LOOKS)
            refusal = survey.verdict_of(answers)[1]
            group.code, group.counted = refusal.code if refusal is not None else report.FITS, self._counts


def _alike(request: Request, rules: Rules | None) -> Alike:
    """Shapes themselves would do. But those of thousands of pods with many containers are a million objects, which the
    garbage collector looks through for a tenth of a second, and nobody is answered meanwhile."""
    return hashlib.sha256(msgspec.json.encode((request.shape, rules), enc_hook=_identity)).digest()


def _identity(kind: Kind) -> int:
    return id(kind)  # there is one object for each kind


def _sum(one: Waiting, other: Waiting | None) -> Waiting:
    return one if other is None else Waiting(one.pods + other.pods, min(one.since, other.since))
