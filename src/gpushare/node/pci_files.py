"""Where the kernel's files about a GPU are."""

from pathlib import Path

from gpushare.gpu.device import Device


def file(device: Device, name: str, root: Path) -> Path:
    """`root`: where this machine's file system begins. ValueError: the driver does not say where the GPU is."""
    return root / "sys/bus/pci/devices" / _address(device.bus) / name


def _address(bus: str) -> str:
    """The driver writes a domain of eight digits, the kernel one of four."""
    domain, _, rest = bus.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
