"""The node component at rest: what it costs every GPU node, all the time.

The API server is in this process; the component is another one (`bench.running_node`) with eight simulated GPUs and a
hundred pods that hold parts of them. Where the driver is real, NVIDIA's library comes on top.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from bench import world
from bench.process import cpu_seconds_now, resident_mb_peak
from bench.result import Result
from bench.started import started
from bench.yardstick import HERE
from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer

NODE = world.node_name(0)
PODS = 100
SETTLE_SECONDS, IDLE_SECONDS = 5.0, 30.0


def run() -> Iterator[Result]:
    resident, idle = asyncio.run(_measure())
    note = f"gpushare node, {world.GPUS} GPUs and {PODS} pods"
    yield Result(f"{note}: resident", resident, "MB", 60.0)
    yield Result(f"{note}: CPU a second, idle", idle, "ms", 1.0, of=fmean)


async def _measure() -> tuple[float, float]:
    async with ApiServer(audit=False, nodes_copy_capacity=True) as server:
        server.load(_objects())
        with tempfile.TemporaryDirectory() as folder:
            config = server.write_kubeconfig(Path(folder) / "kubeconfig")
            async with started(config, NODE, "direct", folder, str(world.TOTAL), *_uuids()) as child:
                await asyncio.sleep(SETTLE_SECONDS)
                before = cpu_seconds_now(child.pid)
                async with HERE.looking():
                    await asyncio.sleep(IDLE_SECONDS)
                spent = cpu_seconds_now(child.pid) - before
                return resident_mb_peak(child.pid), spent / IDLE_SECONDS * 1000


def _objects() -> Iterator[dict[str, Any]]:
    bare = world.node(0)
    del bare["metadata"]["annotations"][names.NODE_GPUS]  # to be published
    yield {"apiVersion": "v1", "kind": "Node", **bare}
    for number in range(PODS):
        item = world.pod(f"team-app-7d9f8c6b5-{number:05d}", 2_000, node=NODE, gpu=number % world.GPUS)
        yield {"apiVersion": "v1", "kind": "Pod", **item}


def _uuids() -> list[str]:
    return [
        gpu["uuid"] for gpu in msgspec.json.decode(world.node(0)["metadata"]["annotations"][names.NODE_GPUS])["gpus"]
    ]
