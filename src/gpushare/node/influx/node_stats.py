"""Looks at CPU, memory, storage and network of this node. The kernel shows them: this needs no right and no request."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpushare.node.influx import node_figures
from gpushare.node.influx.node_figures import CpuTime, NodeFigures

# A file that kubelet puts into every container: it is on the file system of kubelet's own folder, which is what kubelet
# calls the node's storage. Outside a container it is on that of the machine.
ON_NODES_STORAGE: Final = "/etc/hosts"


class NodeStats:
    """`proc`: where /proc is; process 1 in it has the network of the host where the pod has it, or sees its processes.
    The first look has no CPU: that is a difference of two."""

    def __init__(self, proc: str, statvfs: Callable[[str], os.statvfs_result] = os.statvfs) -> None:
        self._proc, self._statvfs = proc, statvfs
        self._before: CpuTime | None = None

    def look(self) -> NodeFigures:
        now = node_figures.cpu_time(self._read("stat"))
        used = node_figures.cpu_milli(self._before, now)
        self._before = now
        interface = node_figures.default_interface(self._read("1/net/route"))
        received, sent = node_figures.traffic(self._read("1/net/dev"), interface) or (None, None)
        return NodeFigures(used, node_figures.memory_used(self._read("meminfo")), self._storage(), received, sent)

    def _storage(self) -> int | None:
        try:
            found = self._statvfs(ON_NODES_STORAGE)
        except OSError:
            return None
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def _read(self, name: str) -> str:
        try:
            return Path(self._proc, name).read_text("utf-8", errors="replace")
        except OSError:
            return ""
