"""NVIDIA's GPUs among the PCI devices of a machine, and the labels that say so.

The kernel shows each device as a folder below /sys/bus/pci/devices with its vendor and class in a file each. A data
center GPU is a 3D controller (0x0302), others are VGA controllers (0x0300). The audio and USB parts of a card have the
same vendor and another class.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpushare.core.facts import names

BUSES: Final = "bus"
DEVICES: Final = f"{BUSES}/pci/devices"
VENDOR: Final = 0x10DE
DISPLAY: Final = 0x03  # the class of all display controllers
ANY, CONTROLLER_3D, CONTROLLER_VGA = names.PCI_LABELS
LABELS: Final = {0x0302: CONTROLLER_3D, 0x0300: CONTROLLER_VGA}


def classes(sysfs: Path) -> frozenset[int]:
    """The classes of NVIDIA's GPUs, such as 0x0302. Raises OSError if that cannot be seen. A machine without a PCI bus
    has none."""
    root = sysfs / DEVICES
    folders = list(root.iterdir()) if root.exists() or not (sysfs / BUSES).is_dir() else []
    return frozenset(found for folder in folders if (found := _gpu_class(folder)) is not None)


def labels(found: Iterable[int]) -> dict[str, str]:
    keys = {LABELS[one] for one in found if one in LABELS} | ({ANY} if found else set())
    return dict.fromkeys(sorted(keys), "true")


def _gpu_class(folder: Path) -> int | None:
    if _number(folder / "vendor") != VENDOR:
        return None
    number = _number(folder / "class")  # six digits: class, subclass, interface
    return number >> 8 if number is not None and number >> 16 == DISPLAY else None


def _number(file: Path) -> int | None:
    """A device may vanish while we look."""
    try:
        return int(file.read_text(), 16)
    except (OSError, ValueError):
        return None
