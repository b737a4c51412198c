"""The life of a pod in the stand-in scheduler: queued, placed, assumed, bound; or refused and queued again."""

import asyncio
import contextlib
import time

from gpushare.devcluster.scheduler import extenders, hints, placing, reports
from gpushare.devcluster.scheduler.extenders import Extender
from gpushare.devcluster.scheduler.queue import Queued
from gpushare.devcluster.scheduler.reports import Reports
from gpushare.devcluster.scheduler.sinks import Cluster
from gpushare.kube import client, pod_requests
from gpushare.kube.errors import KubeError

LONGEST_SLEEP = 60.0  # seconds without a look at the queue


class Cycles:
    """`changed` is set whenever a pod may have to be tried."""

    def __init__(
        self, api: client.Api, extender: Extender | None, cluster: Cluster, reports: Reports, changed: asyncio.Event
    ) -> None:
        self._api, self._extender, self._reports, self._changed = api, extender, reports, changed
        self._cluster, self._queue, self._cache = cluster, cluster.queue, cluster.cache

    async def run(self, bindings: asyncio.TaskGroup) -> None:
        while True:
            queued = await self._next()
            try:
                placement = await placing.place(queued.pod, self._cache, self._extender)
            except extenders.Failed as error:
                await self._failed(queued, reports.SCHEDULER_ERROR, str(error))
                continue
            if isinstance(placement, placing.Unfit):
                await self._failed(queued, reports.UNSCHEDULABLE, placement.message, placement.refused_by)
            elif self._queue.binding(queued):
                self._cache.put(queued.pod, placement)
                bindings.create_task(self._bind(queued, placement))

    async def _next(self) -> Queued:
        while (queued := self._queue.take(time.monotonic())) is None:
            self._changed.clear()
            seconds = min(self._queue.due() - time.monotonic(), LONGEST_SLEEP)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        return queued

    async def _bind(self, queued: Queued, node: str) -> None:
        pod = queued.pod
        meta = pod.metadata
        try:
            if self._extender is not None and self._extender.interested(pod):
                await self._extender.bind(pod, node)
            else:
                await pod_requests.bind(self._api, meta.namespace, meta.name, meta.uid, node, {})
        except (extenders.Failed, KubeError) as error:
            if meta.uid in self._queue.pods:  # else the watch has already shown that it is bound or gone
                self._cache.drop(meta.uid)
                self._cluster.happened(hints.PodLeft())  # also makes the queue be looked at again
                await self._failed(queued, reports.SCHEDULER_ERROR, str(error))
        else:
            self._reports.scheduled(pod, node)

    async def _failed(
        self, queued: Queued, reason: str, message: str, refused_by: frozenset[str] = frozenset()
    ) -> None:
        if not self._queue.failed(queued, refused_by, time.monotonic()):
            return  # gone, or bound by somebody else
        self._reports.failed(queued.pod, message)
        if queued.condition != (reason, message):
            first = queued.condition is None
            if await self._reports.put_condition(queued.pod, reason, message, first=first):
                queued.condition = reason, message
