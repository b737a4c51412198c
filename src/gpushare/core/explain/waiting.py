"""How many pods wait, since when, and for which reason: for metrics.

Pure but for what it remembers. The reason of a pod is what the closest node says that it may use (`survey`). To ask
all nodes takes long, so pods that ask the same are asked about once, and each time only as many as a number of nodes
allows: those first that were never asked about, then those whose answer is oldest.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from gpushare.core.explain import report, survey
from gpushare.core.facts.model import PodFacts, Request, Rules, Shape
from gpushare.core.ledger.ledger import Ledger
from gpushare.core.placement.cost import CALL_LOOKS
from gpushare.core.scheduling.patience import moment
from gpushare.core.steps import Steps

MOST_ANSWERS: Final = 25_000  # of nodes, in one count
STEP_PODS: Final = 500
NOT_LOOKED_AT: Final = "NotLookedAt"  # there are too many different pods: they have no answer yet

Alike = tuple[Shape, Rules | None]
Allowed = Callable[[PodFacts], Collection[str] | None]


class Waiting(NamedTuple):
    pods: int
    since: float  # when the first of them began, in seconds since 1970


class WaitingPods:
    def __init__(self) -> None:
        self._codes: dict[Alike, tuple[str, int]] = {}  # the reason, and in which count it was found
        self._counts = 0

    def counting(
        self, ledger: Ledger, pending: Collection[PodFacts], allowed: Allowed, now: float
    ) -> Steps[Mapping[str, Waiting]]:
        """By code. `pending`: pods that are not bound; those that a scheduler has refused wait. `allowed`: the nodes
        that a pod may use, GPUs aside; None: all."""
        result: dict[str, Waiting] = {}
        groups: dict[Alike, tuple[PodFacts, Waiting]] = {}
        for number, pod in enumerate(list(pending)):
            if number % STEP_PODS == 0:
                yield
            if not pod.unschedulable or ledger.holding(pod.uid) is not None or pod.request is None:
                continue
            one = Waiting(1, min(moment(pod.waits_since or pod.created, now), now))
            if isinstance(pod.request, Request):
                alike = pod.request.shape, pod.rules
                first, before = groups.get(alike, (pod, None))
                groups[alike] = first, _sum(one, before)
            else:
                result[pod.request.code] = _sum(one, result.get(pod.request.code))
        yield from self._ask(ledger, {alike: pod for alike, (pod, _) in groups.items()}, allowed)
        for alike, (_, waiting) in groups.items():
            code = self._codes.get(alike, (NOT_LOOKED_AT, 0))[0]
            result[code] = _sum(waiting, result.get(code))
        return result

    def _ask(self, ledger: Ledger, pods: Mapping[Alike, PodFacts], allowed: Allowed) -> Steps[None]:
        self._counts += 1
        self._codes = {alike: known for alike, known in self._codes.items() if alike in pods}
        most = max(MOST_ANSWERS // max(len(ledger.node_names()), 1), 1)
        for alike in sorted(pods, key=lambda alike: self._codes.get(alike, ("", 0))[1])[:most]:
            among = allowed(pods[alike])
            yield
            answers = yield from survey.surveying(ledger, pods[alike], among, CALL_LOOKS)
            refusal = survey.verdict_of(answers)[1]
            self._codes[alike] = refusal.code if refusal is not None else report.FITS, self._counts


def _sum(one: Waiting, other: Waiting | None) -> Waiting:
    return one if other is None else Waiting(one.pods + other.pods, min(one.since, other.since))
