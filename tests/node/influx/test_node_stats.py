"""CPU, memory, storage and network of a node, from the kernel's files."""

import os
from pathlib import Path

import pytest

from gpushare.node.influx import node_figures
from gpushare.node.influx.node_figures import CpuTime, NodeFigures
from gpushare.node.influx.node_stats import NodeStats

STAT = """\
cpu  1000 100 500 8000 200 50 50 100 300 0
cpu0 500 50 250 4000 100 25 25 50 150 0
cpu1 500 50 250 4000 100 25 25 50 150 0
intr 1 2 3
"""
MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    6000000 kB\n"
ROUTE = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
cni0\t0000F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
wlan0\t00000000\t0100A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
"""
DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo:  999       1    0    0    0     0          0         0  999       1    0    0    0     0       0          0
  eth0:12345       9    0    0    0     0          0         0 6789       8    0    0    0     0       0          0
"""


def proc(folder: Path, stat: str = STAT) -> str:
    for name, text in {"stat": stat, "meminfo": MEMINFO, "1/net/route": ROUTE, "1/net/dev": DEV}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


def test_cpu_is_what_was_used_between_two_looks_in_thousandths_of_a_core() -> None:
    before = node_figures.cpu_time(STAT)
    assert before == CpuTime(busy=1700, total=10000, cores=2)
    # 200 ticks passed on the two cores together; 50 of them were busy: half a core.
    assert node_figures.cpu_milli(before, CpuTime(1750, 10200, 2)) == 500


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, CpuTime(1, 2, 1)),
        (CpuTime(1, 2, 1), None),
        (CpuTime(1, 2, 1), CpuTime(1, 2, 1)),
        (CpuTime(5, 9, 1), CpuTime(1, 2, 1)),  # the machine's counters began again
    ],
)
def test_cpu_is_unknown_without_two_looks_that_can_be_compared(before: CpuTime | None, now: CpuTime | None) -> None:
    assert node_figures.cpu_milli(before, now) is None


def test_memory_that_caches_would_give_back_is_not_used() -> None:
    assert node_figures.memory_used(MEMINFO) == 10_000_000 * 1024


def test_network_is_that_of_the_default_route_with_the_lowest_metric() -> None:
    assert node_figures.default_interface(ROUTE) == "eth0"
    assert node_figures.traffic(DEV, "eth0") == (12345, 6789)


@pytest.mark.parametrize("text", ["", "nonsense", "cpu 1 2", "MemTotal: x kB", "\0\n:::\n"])
def test_what_a_file_does_not_say_is_unknown(text: str) -> None:
    assert node_figures.cpu_time(text) is None
    assert node_figures.memory_used(text) is None
    assert node_figures.default_interface(text) == ""
    assert node_figures.traffic(text, "eth0") is None


def test_the_files_are_read_at_each_look(tmp_path: Path) -> None:
    stats = NodeStats(proc(tmp_path))
    first = stats.look()
    assert (first.cpu_milli, first.memory_used, first.received, first.sent) == (None, 10_240_000_000, 12345, 6789)
    proc(tmp_path, STAT.replace("cpu  1000", "cpu  1050").replace(" 8000 ", " 8150 "))
    assert stats.look().cpu_milli == 500


def test_storage_is_what_is_used_of_the_nodes_file_system(tmp_path: Path) -> None:
    values = (4096, 4096, 1000, 400, 300, 0, 0, 0, 0, 255)
    stats = NodeStats(proc(tmp_path), lambda _: os.statvfs_result(values))
    assert stats.look().storage_used == 600 * 4096


def test_a_machine_that_shows_nothing_has_no_figures(tmp_path: Path) -> None:
    def fails(_: str) -> os.statvfs_result:
        raise PermissionError

    assert NodeStats(str(tmp_path / "none"), fails).look() == NodeFigures()
