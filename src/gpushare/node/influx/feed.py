"""From what is known at one moment to lines in the buffer, once an interval: wiring of this folder."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpushare.kube.client import Api
from gpushare.node.influx import credentials, interval, line, points
from gpushare.node.influx.buffer import Buffer
from gpushare.node.influx.interval import Interval
from gpushare.node.influx.node_stats import NodeStats
from gpushare.node.influx.points import Whose
from gpushare.node.influx.writer import Writer
from gpushare.node.pods import NodePods
from gpushare.node.usage.model import Owner, Usage
from gpushare.node.usage.sampler import Owners

ID_AFTER: Final = "//"  # containerd://ID, cri-o://ID


class Feed:
    """`see` is called once a sample; it makes points once an interval. Intervals begin at whole multiples of their
    length, so that a change of the interval, or of the clock, never leaves one out or repeats one for long."""

    def __init__(
        self,
        url: str,
        seconds: float,
        api: Api,
        pods: NodePods,
        owners: Owners,
        proc: str,
        *,
        environment: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.buffer = Buffer()
        self.interval = Interval(seconds)
        self.writer = Writer(url, lambda: credentials.read(environment), self.buffer)
        self._api, self._pods, self._owners = api, pods, owners
        self._stats, self._now = NodeStats(proc), now
        self._last = (0, 0.0)  # number and length of the last interval that has its points

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run())
            tasks.create_task(interval.follow(self._api, self.interval))

    def see(self, usage: Usage) -> None:
        """Never waits for InfluxDB."""
        now, seconds = self._now(), self.interval.seconds
        this = (int(now // seconds), seconds)
        if this != self._last:
            self._last = this
            made = points.points(usage, self._stats.look(), self._whose(usage), int(now))
            self.writer.add([text.encode(errors="replace") for point in made if (text := line.encode(point))])

    def outcomes(self) -> Mapping[str, int]:
        """Points, by what became of them."""
        return {"written": self.writer.written, "dropped": self.buffer.dropped, "failed": self.writer.failed}

    def _whose(self, usage: Usage) -> dict[int, Whose]:
        pids = {process.pid for gpu in usage.gpus if gpu.sample for process in gpu.sample.processes or ()}
        return whose(self._owners.of(pids).items() if pids else (), self._pods)


def whose(owners: Iterable[tuple[int, Owner]], pods: NodePods) -> dict[int, Whose]:
    """The pod and container of each process. Those of pods that ask for no GPU have none."""
    found = {}
    for pid, owner in owners:
        pod = pods.pods.get(owner.pod_uid) or pods.uncounted.get(owner.pod_uid)
        if pod is not None:
            ids = {(status.container_id or "").rpartition(ID_AFTER)[2]: name
                   for name, status in pod.pod.statuses().items()}  # fmt: skip
            found[pid] = Whose(pod.facts.namespace, pod.facts.name, ids.get(owner.container_id, ""))
    return found
