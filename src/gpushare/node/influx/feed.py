"""From what is known at one moment to lines in the buffer, once an interval: wiring of this folder."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping

from gpushare.kube.client import Api
from gpushare.node.influx import credentials, interval, line, points
from gpushare.node.influx.buffer import Buffer
from gpushare.node.influx.interval import Interval
from gpushare.node.influx.node_stats import NodeStats
from gpushare.node.influx.writer import Writer
from gpushare.node.usage.model import Usage


class Feed:
    """`see` is called once a sample; it makes points once an interval. Intervals begin at whole multiples of their
    length, so that a change of the interval, or of the clock, never leaves one out or repeats one for long.

    A point has no other age than its time. So while the driver does not answer, GPUs have no points at all."""

    def __init__(
        self,
        url: str,
        seconds: float,
        api: Api,
        proc: str,
        *,
        environment: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.buffer = Buffer()
        self.interval = Interval(seconds)
        self.writer = Writer(url, lambda: credentials.read(environment), self.buffer)
        self._api, self._stats, self._now = api, NodeStats(proc), now
        self._last = (0, 0.0)  # number and length of the last interval that has its points
        self._sampled_at: float | None = None  # of what was seen last

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run())
            tasks.create_task(interval.watch(self._api, self.interval).run())

    def see(self, usage: Usage) -> None:
        """Never waits for InfluxDB."""
        now, seconds = self._now(), self.interval.seconds
        answered, self._sampled_at = usage.sampled_at != self._sampled_at, usage.sampled_at
        this = (int(now // seconds), seconds)
        if this != self._last:
            self._last = this
            made = points.points(usage, self._stats.look(), int(now), with_gpus=answered)
            self.writer.add([text.encode(errors="replace") for point in made if (text := line.encode(point))])

    def outcomes(self) -> Mapping[str, int]:
        """Points, by what became of them."""
        return {"written": self.writer.written, "dropped": self.buffer.dropped, "failed": self.writer.failed}
