"""What the node's own files say about its GPUs: NUMA nodes, and which of the driver's device nodes are there."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from gpushare.gpu.device import Device
from gpushare.node import pci_files
from gpushare.node.nvidia.rules.cdi_spec import CONTROL_NODES


def numa(devices: Iterable[Device], root: Path) -> dict[str, int]:
    """The NUMA node of each GPU that has one, by uuid."""
    found = {}
    for device in devices:
        with contextlib.suppress(OSError, ValueError):
            node = int(pci_files.file(device, "numa_node", root).read_text())
            if node >= 0:
                found[device.uuid] = node
    return found


def control_nodes(root: Path) -> list[str]:
    """Those that exist here: NVIDIA's runtime puts them into this container, too."""
    return [path for path in CONTROL_NODES if (root / path.lstrip("/")).exists()]
