"""The first sync of a large cluster, and the same list once more while the extender answers.

The pages come from the embedded API server in this process; the extender is another one (`bench.synced`).
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import world
from bench.process import cpu_seconds, resident_mb_peak
from bench.result import Result
from bench.yardstick import HERE
from gpushare.devcluster.apiserver.server import ApiServer

NODES, PODS = 5_000, 50_000
NODE_BYTES, POD_BYTES = 10_000, 6_000


def run() -> Iterator[Result]:
    cpu, memory, turn = asyncio.run(_measure())
    note = f"{NODES:,} nodes and {PODS:,} pods"
    yield Result(f"first sync of {note}, CPU", cpu, "s", 10.0, of=fmean)
    yield Result(f"first sync of {note}, resident", memory, "MB", 400.0)
    yield Result(f"longest turn of the loop while {PODS:,} pods are listed again", turn, "ms", 50.0, of=fmean)


async def _measure() -> tuple[float, float, float]:
    async with ApiServer(audit=False) as server:
        server.load(_objects())
        with tempfile.TemporaryDirectory() as folder:
            config = server.write_kubeconfig(Path(folder) / "kubeconfig")
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.synced", str(config), stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                assert child.stdout is not None
                async with HERE.looking():
                    await child.stdout.readline()  # synced
                cpu, memory = cpu_seconds(child.pid), resident_mb_peak(child.pid)
                server.store.expire_history()
                turn = json.loads(await child.stdout.readline())["longest_turn_ms"]
                return cpu, memory, turn
            finally:
                child.terminate()
                await child.wait()


def _objects() -> Iterator[dict[str, Any]]:
    for number in range(NODES):
        yield {"apiVersion": "v1", "kind": "Node", **world.node(number, size=NODE_BYTES)}
    for count, item in enumerate(_pods()):
        if count == PODS:
            return
        yield {"apiVersion": "v1", "kind": "Pod", **item}


def _pods() -> Iterator[dict[str, Any]]:
    """Ten pods a node, spread over its GPUs."""
    for copy in range(PODS // NODES):
        for number in range(NODES):
            name = f"team-app-{copy}-7d9f8c6b5-{number:05d}"
            yield world.pod(name, 4_000 + copy, node=world.node_name(number), gpu=copy % world.GPUS, size=POD_BYTES)
