"""Writes the annotation that says which GPUs are kept for a pod, and removes it again.

It sends few requests at a time, so that annotations on thousands of pods, which users may write to get a turn, delay no
wake-up and no binding. For one pod at most one request is in progress: two might arrive in the wrong order.
"""

import asyncio
import random
from collections.abc import Mapping

from gpushare.core.annotations import kept_gpus
from gpushare.core.facts import names
from gpushare.core.facts.model import PodFacts
from gpushare.core.scheduling.patience import Turn
from gpushare.kube import pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, KubeError
from gpushare.kube.loop import Backoff
from gpushare.obs import log

GONE = (404, 422)  # no such pod, or another one of that name: its uid is not ours
SLOTS = 4
RETRY_SECONDS = (1.0, 60.0)

pause, chance = asyncio.sleep, random.random
logger = log.get(__name__)


class KeptAnnotation:
    def __init__(self, api: Api, turns: Mapping[str, Turn]) -> None:
        self._api, self._turns = api, turns
        self._slots = asyncio.Semaphore(SLOTS)
        self._changed: dict[str, bool] = {}  # pods being written on, and whether there is something new to write

    async def write(self, pod: PodFacts) -> None:
        """Until the annotation of the pod is as it should be, or another call of this writes it."""
        if pod.uid in self._changed:
            self._changed[pod.uid] = True
            return
        self._changed[pod.uid] = True
        try:
            await self._write(pod)
        finally:
            del self._changed[pod.uid]

    async def _write(self, pod: PodFacts) -> None:
        retry, failed = Backoff(RETRY_SECONDS, chance=chance), False
        while self._changed[pod.uid]:
            failure = await self._try(pod)
            if isinstance(failure, ApiError) and failure.status in GONE:
                return
            if failure is None:
                retry.reset()
                failed = False
                continue
            if not failed:
                name = f"{pod.namespace}/{pod.name}"
                logger.warn("the annotation of kept GPUs cannot be written, trying again", pod=name, why=str(failure))
            self._changed[pod.uid] = True
            failed = True
            await pause(retry.delay())

    async def _try(self, pod: PodFacts) -> KubeError | None:
        async with self._slots:
            self._changed[pod.uid] = False
            turn = self._turns.get(pod.uid)
            value = kept_gpus.write(turn.kept.node, turn.kept.keys) if turn is not None else None
            try:
                await pod_requests.annotate(self._api, pod.namespace, pod.name, pod.uid, {names.KEPT: value})
            except KubeError as error:
                return error
        return None
