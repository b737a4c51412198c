"""`pod-re-schedule-permit`: evicts pods from GPUs that are unhealthy, or that a neighbour over-uses.

Who should go, and whether there is another place, is `core.scheduling.reschedule`. Here the pod is read, because the
ledger does not keep which nodes a bound pod could use, and the eviction is asked for. Disruption budgets are respected,
because the eviction API does.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from gpushare.core.facts.model import PodFacts, Unit
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling import reschedule
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reschedule import Candidate, OverUsers, Rescheduling, Why
from gpushare.extender.metrics import Metrics
from gpushare.kube import failures, pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.events import Recorder
from gpushare.kube.failures import Outcome
from gpushare.obs import log

TICK: Final = 5.0  # seconds
MOST_READS, MOST_PLACES = 5, 20  # pods that are read, and places looked for, in one tick
EVICTED, KEPT = "GPURescheduled", "GPUNotRescheduled"  # reasons of events
UNHEALTHY: Final = "GPU {gpu} of {node} is unhealthy{why}"
OVER_USED: Final = "another pod uses more of GPU {gpu} of {node} than it asked for"
MOVED: Final = "evicted: {why}; {place} has room for it"
BUDGET: Final = "not evicted, although {why}: a disruption budget keeps it; gpushare tries again every minute"
RIGHT: Final = "the extender needs the right to create pods/eviction: docs/policy-configmap.md"

logger = log.get(__name__)


class Known(NamedTuple):
    """What was read of a bound pod."""

    pod: PodFacts  # as the one that its controller would make instead
    controller: str  # its uid


class Rescheduler:
    def __init__(
        self,
        api: Api,
        life: Life,
        recorder: Recorder,
        metrics: Metrics,
        *,
        unit: Unit | None,
        over_users: OverUsers,
        not_ready: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._life, self._recorder, self._metrics = api, life, recorder, metrics
        self._unit, self._over_users, self._not_ready, self._clock = unit, over_users, not_ready, clock
        self._waiting = Rescheduling()
        self._known: dict[str, Known] = {}
        self._told: set[str] = set()  # uids of pods of which it was said that a budget keeps them
        self._complained = False

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(TICK)
            await self.look()

    async def look(self) -> None:
        """One pod at most goes, if the policy permits it and the view of the cluster is not an old one."""
        if not self._may_act():
            self._waiting.forget()
            return
        bound = self._life.ledger.bound
        self._known = {uid: known for uid, known in self._known.items() if bound(uid) is not None}
        self._told = {uid for uid in self._told if bound(uid) is not None}
        due = self._candidates()[:MOST_PLACES]
        await self._read([candidate.pod for candidate in due if candidate.pod.uid not in self._known])
        if due and self._may_act():
            for candidate in self._candidates()[:MOST_PLACES]:  # again: reading takes time
                if candidate.pod.uid in self._known and await self._is_moved(candidate, self._known[candidate.pod.uid]):
                    return
                await asyncio.sleep(0)  # each may cost as much as a call of a scheduler, and there are many

    def _may_act(self) -> bool:
        return self._life.settings.reschedules and not self._not_ready()

    def _candidates(self) -> list[Candidate]:
        return self._waiting.candidates(self._life.ledger, self._over_users, self._clock())

    async def _read(self, pods: list[PodFacts]) -> None:
        for pod in pods[:MOST_READS]:
            try:
                current = await pod_requests.read(self._api, pod.namespace, pod.name)
            except KubeError as error:
                logger.warn("a pod on a bad GPU cannot be read", pod=f"{pod.namespace}/{pod.name}", why=str(error))
                return
            if current is not None and current.metadata.uid == pod.uid:
                new = reschedule.as_new(current, self._unit)
                self._known[pod.uid] = Known(new, current.metadata.controller)

    async def _is_moved(self, candidate: Candidate, known: Known) -> bool:
        """Whether an eviction was tried: then nothing else is, in this tick."""
        life, pod = self._life, candidate.pod
        place = ""
        if self._waiting.may_go(candidate, known.controller):
            place = reschedule.elsewhere(
                life.ledger, known.pod, pod.node, life.reach, self._over_users, Budget(CALL_LOOKS),
                self._waiting.promised(),
            )  # fmt: skip
        if not place:
            self._waiting.put_off(candidate, self._clock())
            return False
        await self._evict(candidate, known, place)
        return True

    async def _evict(self, candidate: Candidate, known: Known, place: str) -> None:
        pod, why = candidate.pod, in_words(candidate)
        try:
            await pod_requests.evict(self._api, pod.namespace, pod.name, pod.uid)
        except KubeError as error:
            self._not_evicted(candidate, known, error, place)
            return
        self._complained = False
        self._left(candidate, known, place)
        self._metrics.rescheduled.labels(candidate.why.value).inc()
        logger.warn("evicted a pod from a bad GPU", pod=f"{pod.namespace}/{pod.name}", why=why, room=place)
        self._tell(pod, EVICTED, MOVED.format(why=why, place=place))

    def _left(self, candidate: Candidate, known: Known, place: str) -> None:
        self._waiting.evicted(candidate, known.controller, self._clock())
        self._waiting.promise(known.pod, place, self._clock())

    def _not_evicted(self, candidate: Candidate, known: Known, error: KubeError, place: str) -> None:
        outcome, pod, now = failures.of_eviction(error), candidate.pod, self._clock()
        if outcome is Outcome.UNCLEAR:
            self._left(candidate, known, place)
        elif outcome is Outcome.FAILED:
            self._waiting.pause(now)
        else:
            self._waiting.put_off(candidate, now)
        if outcome is Outcome.KEPT and pod.uid not in self._told:
            self._told.add(pod.uid)
            self._tell(pod, KEPT, BUDGET.format(why=in_words(candidate)))
        if outcome in (Outcome.UNCLEAR, Outcome.FAILED) and not self._complained:
            self._complained = True
            why = failures.explain(error, self._api.access)
            lacks = isinstance(error, ApiError) and error.status == 403
            told = {"what": why.what, **why.fields()} | ({"try": RIGHT} if lacks else {})
            logger.warn("a pod on a bad GPU cannot be evicted", pod=f"{pod.namespace}/{pod.name}", **told)

    def _tell(self, pod: PodFacts, reason: str, message: str) -> None:
        self._recorder.record(
            kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, type="Warning", reason=reason,
            message=message,
        )  # fmt: skip


def in_words(candidate: Candidate) -> str:
    gpu, node = candidate.gpu, candidate.pod.node
    if candidate.why is Why.OVER_USED:
        return OVER_USED.format(gpu=gpu.index, node=node)
    return UNHEALTHY.format(gpu=gpu.index, node=node, why=f" ({gpu.why})" if gpu.why else "")
