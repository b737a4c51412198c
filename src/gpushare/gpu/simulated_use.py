"""What simulated GPUs do: figures that are made up, from what is said to run there and what time it is.

Pure. They look as on a real GPU and change with time: load rises and falls slowly, and heat, power and clocks follow
it. The same processes at the same time always have the same figures. An idle GPU does not change at all.
"""

import math
from collections.abc import Sequence

import msgspec

from gpushare.gpu.device import Device
from gpushare.gpu.sample import Process, Sample

MIB = 1024 * 1024
RESERVED = 0.015  # of the GPU's memory, for a driver that is not there
BREATHING = 0.05  # of a process's memory comes and goes
SWING = 0.4  # of its load comes and goes
PERIODS = (47, 71, 103, 149, 211)  # seconds; a process has one of them
IDLE_DEGREES, HOT_DEGREES, LIMIT_DEGREES = 31, 78, 90
IDLE_MILLIWATTS, MOST_MILLIWATTS = 28_000, 250_000
IDLE_MHZ, MOST_MHZ, MEMORY_MHZ = 210, 1410, 1215


class SimulatedProcess(msgspec.Struct, frozen=True):
    """`memory_mib`: the most that it uses. `busy`: percent of the GPU's time, on average."""

    pid: int
    memory_mib: int
    busy: int


def sample(device: Device, processes: Sequence[SimulatedProcess], now: float, energy: int) -> Sample:
    """One GPU. `energy`: what it has used so far, in mJ."""
    total = device.memory_mib * MIB
    reserved = int(total * RESERVED)
    running = _running(processes, now)
    used = min(sum(process.memory or 0 for process in running), total - reserved)
    load = min(sum(process.sm or 0 for process in running), 100)
    degrees = round(_between(IDLE_DEGREES, HOT_DEGREES, load))
    return Sample(
        device.uuid,
        device.index,
        memory_total=total,
        memory_used=used,
        memory_free=total - reserved - used,
        memory_reserved=reserved,
        gpu_util=load,
        memory_util=load * 2 // 5,
        encoder_util=0,
        decoder_util=0,
        temperature=degrees,
        memory_temperature=degrees + 4,
        temperature_limit=LIMIT_DEGREES,
        power=round(_between(IDLE_MILLIWATTS, MOST_MILLIWATTS, load)),
        power_limit=MOST_MILLIWATTS,
        energy=energy,
        sm_clock=MOST_MHZ if load else IDLE_MHZ,
        memory_clock=MEMORY_MHZ,
        pcie_replays=0,
        correctable_remapped_rows=0,
        uncorrectable_remapped_rows=0,
        row_remap_failure=False,
        processes=running,
    )


def _running(processes: Sequence[SimulatedProcess], now: float) -> tuple[Process, ...]:
    """Those that want more than the whole GPU's time get their part of it."""
    waves = [_wave(process.pid, now) for process in processes]
    loads = [process.busy * (1 + SWING * wave) for process, wave in zip(processes, waves, strict=True)]
    squeeze = min(1.0, 100 / sum(loads)) if sum(loads) else 1.0
    return tuple(
        [
            Process(process.pid, int(process.memory_mib * MIB * (1 - BREATHING * (1 - wave) / 2)), int(load * squeeze))
            for process, wave, load in zip(processes, waves, loads, strict=True)
        ]
    )


def _wave(pid: int, now: float) -> float:
    """From -1 to 1, for each process in its own time."""
    return math.sin(2 * math.pi * now / PERIODS[pid % len(PERIODS)] + pid)


def _between(idle: float, busy: float, load: int) -> float:
    return idle + (busy - idle) * load / 100
