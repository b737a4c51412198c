"""What files of this machine say for the labels: its model, and the PCI class of each GPU."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpushare.gpu.device import Device
from gpushare.node import pci_files

MODEL: Final = "sys/class/dmi/id/product_name"


def model(root: Path) -> str:
    """Empty: unknown, as on machines without DMI."""
    try:
        return (root / MODEL).read_text(errors="replace").strip()
    except OSError:
        return ""


def classes(devices: Iterable[Device], root: Path) -> dict[str, int]:
    """Such as 0x0302, by uuid."""
    found = {}
    for device in devices:
        with contextlib.suppress(OSError, ValueError):
            found[device.uuid] = int(pci_files.file(device, "class", root).read_text(), 16) >> 8
    return found
