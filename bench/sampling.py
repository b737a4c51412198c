"""What one pass over the figures of a node costs: eight GPUs with forty processes, through the real binding.

The driver is the stand-in of the tests, which tells every figure; what a real driver spends on an answer is not ours.
CPU time is that of this process with all its threads, and the best of some rounds: on a busy machine others' work makes
each of them dearer.
"""

import asyncio
import ctypes
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml  # type: ignore[import-untyped]

from bench.result import Result
from bench.yardstick import HERE
from gpushare.gpu.nvml import Nvml
from gpushare.gpu.sample import Pass
from tests.support.nvml import build, state

GPUS, PROCESSES = 8, 40
ROUNDS, PASSES = 5, 20
BUDGET_MS = 8.0


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        driver = state.Mock(Path(folder) / "gpus")
        driver.show(*map(_gpu, range(GPUS)))
        os.environ[state.VARIABLE] = str(driver.path)
        pynvml.nvmlLib = ctypes.CDLL(str(build.cached()))
        pynvml._nvmlGetFunctionPointer_cache.clear()
        spent = asyncio.run(_measure())
        del os.environ[state.VARIABLE]
    name = f"sampling, a pass: {GPUS} GPUs, {PROCESSES} processes"
    yield Result(name, min(spent) * 1000, "CPU ms", BUDGET_MS)
    yield Result(f"{name}, worst of {ROUNDS}", max(spent) * 1000, "CPU ms")


def _gpu(number: int) -> str:
    pids = range(1000 + number, 1000 + PROCESSES, GPUS)
    return state.using(number, 40536, *(state.process(pid, 512, 12) for pid in pids), util="80 35", temp=61)


async def _measure() -> list[float]:
    """CPU seconds of a pass, round by round."""
    gpus = Nvml()
    _check(await gpus.sample())
    spent = []
    for _ in range(ROUNDS):
        HERE.look()
        before = time.process_time()
        for _ in range(PASSES):
            await gpus.sample()
        spent.append((time.process_time() - before) / PASSES)
    await gpus.close()
    return spent


def _check(sampled: Pass) -> None:
    """A pass that tells less would cost less."""
    assert sum(len(gpu.processes or ()) for gpu in sampled.gpus) == PROCESSES
    assert all(process.sm == 12 for gpu in sampled.gpus for process in gpu.processes or ())
    assert all(gpu.memory_used and gpu.power and gpu.energy and gpu.memory_temperature for gpu in sampled.gpus)
