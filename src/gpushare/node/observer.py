"""Everything on a node that has to do with what GPUs really do: wiring, read top to bottom.

The driver is sampled once an interval; each part below gets the result. None of them can hold up another one, or what
the node sells.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from gpushare.gpu.device import Backend
from gpushare.kube.client import Api
from gpushare.kube.events import Recorder
from gpushare.kube.labels.this_node import ThisNode
from gpushare.node.exporter.exporter import Config as ExporterConfig
from gpushare.node.gpus import Gpus
from gpushare.node.influx.feed import Feed
from gpushare.node.influx.interval import DEFAULT as INFLUX_SECONDS
from gpushare.node.pods import NodePods
from gpushare.node.publishing.desired import Offered
from gpushare.node.usage import overuse, processes, sampler
from gpushare.node.usage.eviction import Evictor
from gpushare.node.usage.gpunode_writer import GpuNodeWriter
from gpushare.node.usage.overuse import Tolerance
from gpushare.node.usage.overuse_events import OverUses
from gpushare.node.usage.processes import Processes
from gpushare.node.usage.sampler import Sampler
from gpushare.obs.beside import beside

SAMPLED_TWICE: Final = "GPUsSampledTwice"  # reason of an event


class Config(NamedTuple):
    """`proc`: where the node's processes are seen; empty: in our own /proc, if it shows them. `influx`: the address of
    InfluxDB; empty: nothing goes there."""

    sample_seconds: float = sampler.SECONDS  # 0: there is no observer
    proc: str = ""
    tolerance: Tolerance = Tolerance()
    grace: float = overuse.GRACE_SECONDS
    evicts: bool = False  # pods that use more than they asked for
    exporter: ExporterConfig = ExporterConfig()
    influx: str = ""
    influx_seconds: float = INFLUX_SECONDS


class Observer:
    """Made once it is decided what this node publishes. `offered`: what that is now; None: nothing yet."""

    def __init__(
        self,
        config: Config,
        node: str,
        api: Api,
        backend: Backend,
        gpus: Gpus,
        pods: NodePods,
        this_node: ThisNode,
        offered: Callable[[], Offered | None],
        recorder: Recorder,
        owners: sampler.Owners | None = None,
    ) -> None:
        owners = owners or Processes(config.proc)
        self.sampler = Sampler(
            node, backend, offered, pods, owners, seconds=config.sample_seconds,
            buses=lambda: {device.uuid: device.bus for device in gpus.devices},
        )  # fmt: skip

        self.overuse = OverUses(node, overuse.Watch(config.tolerance, config.grace), pods, recorder)
        self.sampler.listeners.append(self.overuse.look)  # the first: others publish what it finds
        self.evictor = Evictor(node, api, pods, self.overuse) if config.evicts else None
        if self.evictor is not None:
            self.sampler.listeners.append(self.evictor.look)
        self.gpunode = GpuNodeWriter(
            api, this_node, config.sample_seconds, lambda: self.overuse.current, lambda why: _warn(recorder, node, why)
        )
        self.sampler.listeners.append(self.gpunode.take)
        self.influx: Feed | None = None
        if config.influx:
            self.influx = Feed(config.influx, config.influx_seconds, api, config.proc or processes.OWN)
            self.sampler.listeners.append(self.influx.see)

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            for one in (self.sampler, self.evictor, self.gpunode, self.influx):
                if one is not None:
                    tasks.create_task(beside(one.run))


def _warn(recorder: Recorder, node: str, why: str) -> None:
    recorder.record(
        kind="Node", namespace="", name=node, uid=node, type="Warning", reason=SAMPLED_TWICE, message=why
    )  # fmt: skip
