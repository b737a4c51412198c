"""The operator with 1,000 GPU nodes: what a pass costs that finds nothing to do, the first one, and a heartbeat.

The API server is one in memory, whose own work counts with the first pass: it stores each write. Objects are those of
the default policy.
"""

import asyncio
import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import msgspec

from bench.result import Result
from bench.yardstick import HERE
from gpushare.core.annotations import node_gpus, validation
from gpushare.core.annotations.validation import Check
from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, Pin
from gpushare.kube import resources
from gpushare.operator import manifests
from gpushare.operator.desired import whole
from gpushare.operator.managed import Node
from tests.operator.operated import Operated

NODES = 1000
GPUS = 8
PASSES = 5
BEATS = 2000
SINCE = "2026-11-17T20:00:00Z"


def run() -> Iterator[Result]:
    yield from asyncio.run(_measure())


async def _measure() -> list[Result]:
    operated = Operated(whole.desired, manifests.load)
    for number in range(NODES):
        operated.api.put(resources.NODES.item("", f"gpu-{number}"), _node(number))
    operated.policy()
    operated.see()
    begun = time.process_time()
    await operated.passes(see=False)
    first = time.process_time() - begun
    await operated.settle()
    assert all(names.GPU_PRESENT in operated.labels(f"gpu-{number}") for number in range(NODES))
    written = len(operated.api.writes)
    spent = []
    for _ in range(PASSES):
        HERE.look()
        begun = time.process_time()
        await operated.passes(see=False)
        spent.append(time.process_time() - begun)
    assert len(operated.api.writes) == written, "a pass with nothing to do has written something"
    return [
        Result(f"operator, {NODES} nodes: a pass with nothing to do", fmean(spent), "CPU-s", 0.5, of=fmean),
        Result(f"operator, {NODES} nodes: the first pass labels all", first, "CPU-s", 3.0, of=fmean),
        Result("operator: a node's heartbeat", _heartbeat(operated), "ms", 0.5, of=fmean),
    ]


def _heartbeat(operated: Operated) -> float:
    """As it arrives: decoded, compared, and found to change nothing."""
    body = msgspec.json.encode(operated.api.objects[resources.NODES.item("", "gpu-7")])
    decoder, wakes = msgspec.json.Decoder(Node), operated.wakes
    begun = time.process_time()
    for _ in range(BEATS):
        operated.seen.nodes.upsert(decoder.decode(body))
    spent = time.process_time() - begun
    assert operated.wakes == wakes, "a heartbeat has woken the operator"
    return spent / BEATS * 1000


def _node(number: int) -> dict[str, Any]:
    gpus = [Gpu(index, f"GPU-{number}-{index}", 81920, True, model="NVIDIA A100-SXM4-80GB") for index in range(GPUS)]
    checks = {name: Check("passed", SINCE) for name in validation.CHECKS}
    labels = {f"feature.node.kubernetes.io/cpu-{one}": "true" for one in range(40)}
    return {
        "metadata": {
            "name": f"gpu-{number}",
            "labels": {**labels, names.PCI_LABELS[0]: "true"},
            "annotations": {
                names.NODE_GPUS: node_gpus.write("MiB", Pin.DIRECT, gpus),
                names.VALIDATION: validation.write(checks),
            },
        },
        "status": {
            "capacity": {names.GPU_MEM: str(81920 * GPUS), "cpu": "128"},
            "conditions": [{"type": kind, "status": "False", "message": "x" * 60} for kind in "abcdef"],
            "images": [{"names": [f"registry/image-{one}"], "sizeBytes": 1} for one in range(50)],
        },
    }
