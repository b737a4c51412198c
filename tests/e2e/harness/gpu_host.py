"""What a machine with GPUs has besides kubelet: driver, NVIDIA's container runtime, device nodes and PCI devices.

All of it stands in a folder in place of the machine's file system, which the tests' own machine shares with it. Tests
break and heal it: `without(LIBRARY)`.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.e2e.harness import binaries, nvidia_runtime
from tests.e2e.harness.containers import Machine
from tests.support.nvml import build, state

LIBRARY = nvidia_runtime.LIBRARY
RUNTIME = "usr/bin/nvidia-container-runtime"
VENDOR, CLASS = "0x10de", "0x030200"  # NVIDIA's, of a GPU without a screen
NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class GpuHost:
    def __init__(self, machine: Machine) -> None:
        self.root, self._pci = machine.host, machine.pci
        self.mock = state.Mock(self.root / nvidia_runtime.GPUS)
        self.sizes: list[int] = []  # MiB of each GPU

    async def install(self, gpus: Sequence[int]) -> None:
        """Driver and runtime, and these GPUs (MiB)."""
        library = self.root / LIBRARY
        await asyncio.to_thread(build.build, library.parent)
        runtime = self.root / RUNTIME
        runtime.parent.mkdir(parents=True, exist_ok=True)
        runtime.write_text(nvidia_runtime.program(self.root, str(binaries.packaged("usr/sbin/runc"))))
        runtime.chmod(0o755)
        (self.root / "var").mkdir(exist_ok=True)
        if not (self.root / "var" / "run").is_symlink():
            (self.root / "var" / "run").symlink_to("/run")
        self.mock.path.parent.mkdir(exist_ok=True)
        self.plug_in(gpus)

    def plug_in(self, gpus: Sequence[int]) -> None:
        self.sizes = list(gpus)
        self.mock.show(*(state.card(number, mib) for number, mib in enumerate(gpus)))
        devices = self.root / "dev"
        devices.mkdir(exist_ok=True)
        for name in (*NODES, *(f"nvidia{number}" for number in range(len(gpus)))):
            if not (devices / name).exists():
                os.mknod(devices / name, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # what it is does not matter
        for number in range(len(gpus)):
            device = self._pci / f"0000:{number + 16:02x}:00.0"  # as `state.card` says
            device.mkdir(exist_ok=True)
            (device / "vendor").write_text(f"{VENDOR}\n")
            (device / "class").write_text(f"{CLASS}\n")

    @contextlib.contextmanager
    def without(self, path: str) -> Iterator[None]:
        """Meanwhile this file of the machine is not there."""
        away = self.root / f"{path}.away"
        (self.root / path).rename(away)
        try:
            yield
        finally:
            away.rename(self.root / path)

    def report(self, xid: int, number: int) -> None:
        """An error of this GPU, as the driver reports it."""
        self.mock.xid(xid, number)

    def uuids(self) -> list[str]:
        return [state.uuid(number) for number in range(len(self.sizes))]

    def file(self, path: str) -> Path:
        return self.root / path
