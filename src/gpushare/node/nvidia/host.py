"""What the node's own files say about its GPUs: NUMA nodes, and which of the driver's device nodes are there."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from gpushare.gpu.device import Device
from gpushare.node.nvidia.rules.cdi_spec import CONTROL_NODES


def numa(devices: Iterable[Device], root: Path) -> dict[str, int]:
    """The NUMA node of each GPU that has one, by uuid."""
    found = {}
    for device in devices:
        with contextlib.suppress(OSError, ValueError):
            node = int(pci_file(device, "numa_node", root).read_text())
            if node >= 0:
                found[device.uuid] = node
    return found


def control_nodes(root: Path) -> list[str]:
    """Those that exist here: NVIDIA's runtime puts them into this container, too."""
    return [path for path in CONTROL_NODES if (root / path.lstrip("/")).exists()]


def pci_file(device: Device, name: str, root: Path) -> Path:
    """What the kernel says of a GPU. Raises ValueError if the driver does not say where the GPU is."""
    return root / "sys/bus/pci/devices" / _address(device.bus) / name


def _address(bus: str) -> str:
    """The driver writes a domain of eight digits, the kernel one of four."""
    domain, _, rest = bus.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
