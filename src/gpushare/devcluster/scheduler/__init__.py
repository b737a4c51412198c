"""A stand-in for kube-scheduler, for trying gpushare and for testing it. It is not kube-scheduler.

It does around an extender what kube-scheduler 1.36 does. It takes one pod at a time, runs its own checks
(`core.facts.intree`: cordon, taints, nodeSelector, required node affinity, totals), asks the extender to filter and
prioritize, assumes the pod on its node and binds it while the next cycle runs. If nothing fits it writes the reason
into the pod's condition, and tries again when something changed that could help. The same scenarios run against both
(`tests/contracts/scheduling`). It has no preemption, nominated nodes, preferred affinity, pod affinity, spreading,
volumes, ports, claims, second score, or random choice among equal nodes.

    async with Scheduler(access, extender_url="http://127.0.0.1:12345/gpushare-scheduler"):
        ...

`cycles` is the life of a pod, `placing` chooses a node, `queue` says which pod is next, `sinks` feeds queue and cache
from the watches, `reports` writes conditions and events.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Self

import aiohttp

from gpushare.core.facts.intree import Node, Pod
from gpushare.devcluster.scheduler import extenders, sinks
from gpushare.devcluster.scheduler.cache import Cache
from gpushare.devcluster.scheduler.cycles import Cycles
from gpushare.devcluster.scheduler.extenders import Extender
from gpushare.devcluster.scheduler.queue import Queue
from gpushare.devcluster.scheduler.reports import Reports
from gpushare.kube import client, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.reflector import Reflector

DEFAULT_NAME = "default-scheduler"
AGENT = "kube-scheduler-stand-in"  # its name in the audit log: its writes are not the extender's


class Scheduler:
    """Runs while its block does; a bug in it ends the block.

    `schedulers`: its names, as in spec.schedulerName. `filter_verb`: choose or filter. Durations are in seconds.
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
        await self._group.__aexit__(None, None, None)  # an error of the block itself is raised unchanged

    async def _run(self) -> None:
        cache, changed = Cache(), asyncio.Event()
        cluster = sinks.Cluster(self._queue, cache, time.monotonic, changed.set)
        pods_sink, nodes_sink = sinks.Pods(cluster, self._schedulers), sinks.Nodes(cluster)
        async with (
            client.connect(self._access, agent=AGENT) as api,
            aiohttp.ClientSession() as session,
            asyncio.TaskGroup() as tasks,
        ):
            pods = Reflector(api, resources.PODS, Pod, pods_sink, key=lambda pod: pod.metadata.uid)
            nodes = Reflector(api, resources.NODES, Node, nodes_sink, key=lambda node: node.metadata.name)
            reports = Reports(api, self._schedulers[0])
            extender = None if self._extender is None else Extender(self._extender, session)
            for work in (nodes.run(), pods.run(), reports.run()):
                tasks.create_task(work)
            await nodes.wait_synced()
            await pods.wait_synced()
            await Cycles(api, extender, cluster, reports, changed).run(tasks)
