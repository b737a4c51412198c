"""A folder that looks like /sys as far as PCI devices are concerned."""

import itertools
import shutil
from pathlib import Path

import pytest

from gpushare.node.finder import pci


class Sysfs:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._numbers = itertools.count(1)
        (root / pci.DEVICES).mkdir(parents=True)

    def add(self, class_: str, vendor: str = "0x10de") -> str:
        """Returns its address. As the kernel does, the list has a link to the device."""
        address = f"0000:{next(self._numbers):02x}:00.0"
        device = self.root / "devices" / "pci0000:00" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{class_}\n")
        (self.root / pci.DEVICES / address).symlink_to(f"../../../devices/pci0000:00/{address}")
        return address

    def remove(self, address: str) -> None:
        (self.root / pci.DEVICES / address).unlink()
        shutil.rmtree(self.root / "devices" / "pci0000:00" / address)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path / "sys")
