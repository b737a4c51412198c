"""The pages that Prometheus reads: that of a node with many containers, and what the extender's costs it.

The extender looks at all nodes from time to time in short steps. The longest step is how long a scheduler may wait.
"""

import gc
import time
from collections.abc import Generator, Iterator
from statistics import fmean
from typing import Any

from bench import world
from bench.inside import Inside, cpu_ms, decoded_pod
from bench.result import Result
from bench.yardstick import HERE
from gpushare.core.explain import figures
from gpushare.core.explain.waiting import WaitingPods
from gpushare.gpu.sample import Sample
from gpushare.node.exporter.exporter import Config, Exporter
from gpushare.node.exporter.page import Counted
from gpushare.node.metrics import Metrics, Sight
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from gpushare.obs import metrics

GPUS, CONTAINERS = 8, 80
GIB = 1 << 30
WAITING, SHAPES = 1_000, 10
TURN_BUDGET = 20.0


def run() -> Iterator[Result]:
    exporter = Exporter(
        Config(), Metrics(Sight()).registry, usage=lambda: USAGE, counted=Counted, dcgm_runs=lambda: False
    )
    page = cpu_ms([exporter.page], 50)
    yield Result(f"/metrics of a node, {GPUS} GPUs and {CONTAINERS} containers", page, "ms", 5.0)
    for nodes in (1_000, 5_000):
        yield from _extender(nodes)


def _extender(nodes: int) -> Iterator[Result]:
    inside = Inside(nodes)
    for number in range(WAITING):
        item = world.pod(f"wait-{number}", 900_000 + number % SHAPES)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        item["status"]["conditions"] = [condition]
        inside.pods.upsert(decoded_pod(item))
    pending, allowed = inside.life.pending.shown.values(), inside.nodes.by_rules.allowed
    inside.metrics.look(lambda: None)
    gc.collect()
    gc.freeze()
    waiting = WaitingPods()
    one, two = (
        _steps(figures.counting(inside.ledger, pending)),
        _steps(waiting.counting(inside.ledger, pending, allowed, time.time())),
    )
    printed = cpu_ms([lambda: metrics.exposition(inside.metrics.registry)], 5)
    gc.unfreeze()
    note = f"figures of {nodes:,} nodes, {WAITING:,} pods wait"
    yield Result(f"{note}: longest turn", max(*one, *two), "ms", TURN_BUDGET, of=fmean)
    yield Result(f"{note}: in all, every 15 s", sum(one) + sum(two), "ms", of=fmean)
    yield Result(f"/metrics of the extender, {nodes:,} nodes", printed, "ms", TURN_BUDGET)


def _steps(steps: Generator[None, None, Any]) -> list[float]:
    """CPU time of each, in ms."""
    spent = []
    while True:
        HERE.look()
        begun = time.process_time()
        done = next(steps, steps) is steps
        spent.append((time.process_time() - begun) * 1000)
        if done:
            return spent


def _gpu(index: int) -> GpuUse:
    uuid = f"GPU-{index:08d}-1111-2222-3333-444455556666"
    sample = Sample(
        uuid, index, memory_total=80 * GIB, memory_used=30 * GIB, memory_free=49 * GIB, memory_reserved=GIB,
        gpu_util=63, memory_util=20, encoder_util=1, decoder_util=2, temperature=61, memory_temperature=70,
        temperature_limit=87, power=412_345, power_limit=700_000, energy=1_234_567_890, sm_clock=1410,
        memory_clock=1593, pcie_replays=3, correctable_remapped_rows=1, uncorrectable_remapped_rows=0,
        row_remap_failure=False,
    )  # fmt: skip
    containers = tuple(
        ContainerUse("team-namespace", f"team-app-7d9f8c6b5-{n:05d}", f"uid-{n}", "main", 8 * GIB, False, 7 * GIB, 0.1)
        for n in range(index, CONTAINERS, GPUS)
    )
    return GpuUse(
        index, uuid, "NVIDIA H100 80GB HBM3", 80 * GIB, 80 * GIB, bus="00000000:07:00.0", sample=sample,
        containers=containers, unattributed=0,
    )  # fmt: skip


USAGE = Usage("gpu-node-0001", tuple(_gpu(index) for index in range(GPUS)), sampled_at=1.0, driver="580.65.06")
