"""A stand-in for kube-scheduler, for trying gpushare and for testing it. It is not kube-scheduler.

It does around an extender what kube-scheduler 1.36 does: one pod at a time, its own checks (`core.facts.intree`:
cordon, taints, nodeSelector, required node affinity, totals), the extender's filter and prioritize, the pod assumed on
its node at once, the binding beside the next cycle; a sentence in the pod's condition when nothing fits, and another
try when that may have changed. The same scenarios run against both (`tests/contracts/scheduling`). What it does not
have: preemption and nominated nodes, preferred affinity, affinity to pods, spreading, volumes, ports, claims, more than
one score, a choice among equals by chance.

    async with Scheduler(access, extender_url="http://127.0.0.1:12345/gpushare-scheduler"):
        ...

`placing` decides, `queue` says who is next, `sinks` keeps the picture of the cluster true, `voice` tells people.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Self

import aiohttp

from gpushare.core.facts.intree import Node, Pod
from gpushare.devcluster.scheduler import extenders, hints, placing, reports, sinks
from gpushare.devcluster.scheduler.cache import Cache
from gpushare.devcluster.scheduler.extenders import Extender
from gpushare.devcluster.scheduler.queue import Queue, Queued
from gpushare.devcluster.scheduler.reports import Voice
from gpushare.kube import client, pod_requests, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import KubeError
from gpushare.kube.reflector import Reflector

DEFAULT_NAME = "default-scheduler"
LONGEST_REST = 60.0  # seconds without a look at the queue


class Scheduler:
    """Runs while its block does; a bug in it ends the block.

    `schedulers` are the names it goes by, `filter_verb` is the extender's choose or filter; durations are in seconds.
    """

    def __init__(
        self,
        access: Access,
        *,
        extender_url: str | None = None,
        filter_verb: str = extenders.CHOOSE,
        schedulers: Sequence[str] = (DEFAULT_NAME,),
        first_backoff: float = 1.0,
        longest_backoff: float = 10.0,
        waits_at_most: float = 300.0,
    ) -> None:
        self._access, self._schedulers = access, schedulers
        self._extender = None if extender_url is None else extenders.Settings(extender_url, filter_verb)
        self._queue = Queue(first=first_backoff, longest=longest_backoff, at_most=waits_at_most)
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._running = self._group.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await self._group.__aexit__(None, None, None)  # an error of the block itself stays as it is

    async def _run(self) -> None:
        cache, stirred = Cache(), asyncio.Event()
        picture = sinks.Picture(self._queue, cache, time.monotonic, stirred.set)
        pods_sink, nodes_sink = sinks.Pods(picture, self._schedulers), sinks.Nodes(picture)
        async with (
            client.connect(self._access) as api,
            aiohttp.ClientSession() as session,
            asyncio.TaskGroup() as tasks,
        ):
            pods = Reflector(api, resources.PODS, Pod, pods_sink, key=lambda pod: pod.metadata.uid)
            nodes = Reflector(api, resources.NODES, Node, nodes_sink, key=lambda node: node.metadata.name)
            speaker = Voice(api, self._schedulers[0])
            extender = None if self._extender is None else Extender(self._extender, session)
            for work in (nodes.run(), pods.run(), speaker.run()):
                tasks.create_task(work)
            await nodes.wait_synced()
            await pods.wait_synced()
            await Cycles(api, extender, picture, speaker, stirred).run(tasks)


class Cycles:
    """The life of a pod: taken from the queue, placed, assumed, bound; or refused, and back to the queue."""

    def __init__(
        self, api: client.Api, extender: Extender | None, picture: sinks.Picture, speaker: Voice, stirred: asyncio.Event
    ) -> None:
        self._api, self._extender, self._voice, self._stirred = api, extender, speaker, stirred
        self._picture, self._queue, self._cache = picture, picture.queue, picture.cache

    async def run(self, bindings: asyncio.TaskGroup) -> None:
        while True:
            queued = await self._next()
            try:
                found = await placing.place(queued.pod, self._cache, self._extender)
            except extenders.Failed as error:
                await self._failed(queued, reports.SCHEDULER_ERROR, str(error))
                continue
            if isinstance(found, placing.Unfit):
                await self._failed(queued, reports.UNSCHEDULABLE, found.message, found.refused_by)
            elif self._queue.binding(queued):
                self._cache.put(queued.pod, found)
                bindings.create_task(self._bind(queued, found))

    async def _next(self) -> Queued:
        while (queued := self._queue.take(time.monotonic())) is None:
            self._stirred.clear()
            rest = min(self._queue.due() - time.monotonic(), LONGEST_REST)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._stirred.wait()
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
            if meta.uid in self._queue.pods:  # else the watch has shown what became of it
                self._cache.drop(meta.uid)
                self._picture.happened(hints.PodLeft())  # which also has the queue looked at again
                await self._failed(queued, reports.SCHEDULER_ERROR, str(error))
        else:
            self._voice.scheduled(pod, node)

    async def _failed(
        self, queued: Queued, reason: str, message: str, refused_by: frozenset[str] = frozenset()
    ) -> None:
        if not self._queue.failed(queued, refused_by, time.monotonic()):
            return  # gone, or bound by somebody else
        self._voice.failed(queued.pod, message)
        if queued.said != (reason, message):
            first = queued.said is None
            if await self._voice.put_condition(queued.pod, reason, message, first=first):
                queued.said = reason, message
