"""What the extender does without being asked, twenty times a second, while it answers schedulers.

Decisions are `core.scheduling.life`; here is when they are made, and the requests to the API server that follow. Each
request is a task of its own: a slow API server delays no other step.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts
from gpushare.core.placement.cost import CALL_LOOKS, Budget
from gpushare.core.scheduling.life import Life
from gpushare.extender import watches
from gpushare.extender.events import Announcer
from gpushare.extender.kept_annotation import GONE, KeptAnnotation
from gpushare.extender.metrics import Metrics
from gpushare.extender.vitals import Vitals
from gpushare.kube import pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.obs import log

TICK = 0.05  # seconds; so late may be seen that memory came free
PATIENCE_TICK = 1.0
UNITS_TICK = 30.0
RETRY_SECONDS = 1.0  # between two tries to wake or read a pod
WAKE_UPS = 32  # sent at the same time
READS = 16  # at the same time: bindings need connections, too

logger = log.get(__name__)


class Housekeeping:
    def __init__(
        self,
        api: Api,
        life: Life,
        nodes: watches.Nodes,
        pods: watches.Pods,
        announcer: Announcer,
        metrics: Metrics,
        vitals: Vitals,
    ) -> None:
        self._api, self._life, self._nodes, self._pods = api, life, nodes, pods
        self._announcer, self._metrics, self._vitals = announcer, metrics, vitals
        self._kept = KeptAnnotation(api, life.patience.turns)
        self._wake_ups, self._reads = asyncio.Semaphore(WAKE_UPS), asyncio.Semaphore(READS)
        self._patience_due = self._units_due = 0.0

    async def run(self, not_ready: Callable[[], str]) -> None:
        """For ever. While `not_ready` says why, the view of the cluster may be old: then nothing is decided."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(TICK)
                now = time.monotonic()
                self._life.ledger.expire(now)
                self._nodes.settle_contradictions()
                if not not_ready():
                    self._decide(tasks, now)

    def _decide(self, tasks: asyncio.TaskGroup, now: float) -> None:
        self._life.ledger.study(Budget(CALL_LOOKS))
        if now >= self._patience_due:  # before others are woken for what is kept from now on
            self._patience_due = now + PATIENCE_TICK
            self._vitals.expire()
            for pod in self._take_turns(time.time()):
                tasks.create_task(self._kept.write(pod))
        for pod in self._life.due(now):
            tasks.create_task(self._wake(pod))
        while self._pods.unsure:
            tasks.create_task(self._make_sure(self._pods.unsure.pop()))
        if now >= self._units_due:
            self._units_due = now + UNITS_TICK
            self._nodes.check_units()

    def _take_turns(self, now: float) -> list[PodFacts]:
        """For whom GPUs are kept from now on, and for whom no longer. Returns the pods whose annotation changes."""
        changes = self._life.take_turns(now)
        for kept in changes.given:
            self._announcer.kept(kept, now - kept.since)
        return [*changes.ended, *[kept.pod for kept in changes.given]]

    async def _wake(self, pod: PodFacts) -> None:
        """Writes an annotation on a waiting pod. kube-scheduler sees the change and asks about the pod again."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        async with self._wake_ups:
            try:
                await pod_requests.annotate(self._api, pod.namespace, pod.name, pod.uid, {names.WOKEN: stamp})
                self._life.wakeups.touched(pod.uid, time.monotonic())
                self._metrics.wake_ups.inc()
                return
            except KubeError as error:
                failure = error
        if isinstance(failure, ApiError) and failure.status in GONE:
            self._life.wakeups.gone(pod.uid)  # there is no such pod: the next one may be woken
            return
        logger.warn("wake-up failed, trying again", pod=f"{pod.namespace}/{pod.name}", why=str(failure))
        await asyncio.sleep(RETRY_SECONDS)
        self._life.wakeups.failed_to_wake(pod.uid)

    async def _make_sure(self, pod: PodFacts) -> None:
        """No list shows a pod as we know it: is it there, and bound?"""
        async with self._reads:
            before = self._life.ledger.holding(pod.uid)
            try:
                answer = await pod_requests.read(self._api, pod.namespace, pod.name)
            except KubeError:
                pass
            else:
                self._pods.made_sure(pod, before, answer)
                return
        await asyncio.sleep(RETRY_SECONDS)
        self._pods.unsure.append(pod)
