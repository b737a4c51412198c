"""CPU, memory and network of this node in the words of the kernel: what the files below /proc say.

Pure; `node_stats` reads the files. What a file does not show is None: unknown, never 0.
"""

from typing import Final, NamedTuple

KIB: Final = 1024
DEFAULT_ROUTE: Final = "00000000"


class NodeFigures(NamedTuple):
    """Bytes, and thousandths of a core. Network: since the machine started."""

    cpu_milli: int | None = None
    memory_used: int | None = None
    storage_used: int | None = None
    received: int | None = None
    sent: int | None = None


class CpuTime(NamedTuple):
    """Since the machine started, in ticks of all cores together."""

    busy: int
    total: int
    cores: int


def cpu_time(stat: str) -> CpuTime | None:
    """Of /proc/stat."""
    lines = stat.splitlines()
    first = next((line.split() for line in lines if line.startswith("cpu ")), [])
    numbers = [int(word) for word in first[1:9] if word.isdecimal()]
    if len(numbers) < 8:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = numbers
    busy = user + nice + system + irq + softirq
    cores = sum(line.startswith("cpu") and line[3:4].isdecimal() for line in lines)
    return CpuTime(busy, busy + idle + iowait + steal, cores)


def cpu_milli(before: CpuTime | None, now: CpuTime | None) -> int | None:
    """How much of the CPU was used in between, in thousandths of a core."""
    if before is None or now is None or now.total <= before.total or now.busy < before.busy:
        return None
    return round((now.busy - before.busy) / (now.total - before.total) * now.cores * 1000)


def memory_used(meminfo: str) -> int | None:
    """Of /proc/meminfo: what is not available to a new program, so without caches."""
    words = {name: rest.split() for name, _, rest in (line.partition(":") for line in meminfo.splitlines())}
    total, available = (words.get(name, [""])[0] for name in ("MemTotal", "MemAvailable"))
    return (int(total) - int(available)) * KIB if total.isdecimal() and available.isdecimal() else None


def default_interface(route: str) -> str:
    """Of /proc/net/route: the interface of the default route, as kubelet reports it; empty: there is none. Sums over
    all interfaces would count what goes to a pod or through a bond twice."""
    found = []
    for line in route.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == words[7] == DEFAULT_ROUTE and words[6].isdecimal():
            found.append((int(words[6]), words[0]))
    return min(found)[1] if found else ""


def traffic(dev: str, interface: str) -> tuple[int, int] | None:
    """Of /proc/net/dev: bytes that this interface has received and sent."""
    for line in dev.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name.strip() == interface and len(words) > 8 and words[0].isdecimal() and words[8].isdecimal():
            return int(words[0]), int(words[8])
    return None
