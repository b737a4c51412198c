"""CPU seconds and memory of another process."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_seconds_now(pid: int) -> float:
    """Of the threads it has now, to the nanosecond: for so little, the ticks of a clock are too coarse."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def resident_mb_peak(pid: int) -> float:
    """The most it ever had."""
    return _status_mb(pid, "VmHWM:")


def resident_mb_now(pid: int) -> float:
    return _status_mb(pid, "VmRSS:")


def _status_mb(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
