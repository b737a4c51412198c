"""NVIDIA's GPUs among the PCI devices of a machine, as the kernel shows them."""

import pytest

from gpushare.core.facts import names
from gpushare.node.finder import pci
from tests.support.sysfs import Sysfs

ANY, CONTROLLER_3D, CONTROLLER_VGA = names.PCI_LABELS


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ([], []),
        (["0x030200"], [ANY, CONTROLLER_3D]),
        (["0x030000"], [ANY, CONTROLLER_VGA]),
        (["0x030200", "0x030000", "0x030200"], [ANY, CONTROLLER_3D, CONTROLLER_VGA]),
        (["0x038000"], [ANY]),
        (["0x040300", "0x0c0330", "0x068000"], []),
    ],
)
def test_the_class_of_a_gpu_is_in_its_label(sysfs: Sysfs, classes: list[str], labels: list[str]) -> None:
    for one in classes:
        sysfs.add(one)
    assert pci.labels(pci.classes(sysfs.root)) == dict.fromkeys(labels, "true")


def test_gpus_of_others_do_not_count(sysfs: Sysfs) -> None:
    sysfs.add("0x030000", vendor="0x1002")
    sysfs.add("0x030000", vendor="0x8086")
    assert pci.classes(sysfs.root) == frozenset()


def test_a_device_that_vanishes_or_says_nonsense_does_not_count(sysfs: Sysfs) -> None:
    sysfs.add("0x030200")
    sysfs.add("what")
    (sysfs.root / pci.DEVICES / "0000:ff:00.0").symlink_to(sysfs.root / "gone")
    assert pci.classes(sysfs.root) == {0x0302}


def test_a_machine_without_a_pci_bus_has_no_gpu(sysfs: Sysfs) -> None:
    (sysfs.root / pci.DEVICES).rmdir()
    assert pci.classes(sysfs.root) == frozenset()


def test_a_wrong_folder_is_an_error(sysfs: Sysfs) -> None:
    with pytest.raises(OSError, match="bus/pci/devices"):
        pci.classes(sysfs.root / "elsewhere")
