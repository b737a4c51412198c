"""A machine in a folder: a driver that is the stand-in for NVIDIA's library, device nodes, programs, a PCI bus."""

import json
import shutil
from pathlib import Path

from gpushare.validate.machine.host import Places
from gpushare.validate.rules import driver
from tests.support.nvml import build, state

FOLDER = "usr/lib/x86_64-linux-gnu"


class Machine:
    """`root`: of the machine. `gpus`: what its driver shows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "host"
        (self.root / "dev").mkdir(parents=True)
        # The path of the GPUs' description is the same below the root, where the driver is asked as root, and outside.
        inside = self.root / str(folder).lstrip("/") / "gpus"
        inside.parent.mkdir(parents=True)
        (folder / "gpus").symlink_to(inside)
        self.gpus = state.Mock(inside)
        self.gpus.show(state.card(0), state.card(1))

    @property
    def environment(self) -> dict[str, str]:
        return {state.VARIABLE: str(self.folder / "gpus")}

    def places(self, **more: str) -> Places:
        return Places(self.root, **more)

    @property
    def library(self) -> Path:
        return self.root / FOLDER / driver.LIBRARY

    def install(self, below: str = "") -> None:
        """The driver. A link to the library, as NVIDIA installs it."""
        target = self.root / below / FOLDER / "libnvidia-ml.so.550.54.14"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(build.cached(), target)
        link = target.with_name(driver.LIBRARY)
        link.unlink(missing_ok=True)
        link.symlink_to(target.name)

    def devices(self, *names: str) -> None:
        for name in names:
            (self.root / "dev" / name).touch()

    def program(self, path: str = "/usr/bin/nvidia-container-runtime") -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        return file

    def spec(self, *nodes: str, path: str = "/etc/cdi/nvidia.json", kind: str = "nvidia.com/gpu") -> Path:
        """A CDI spec that names these device nodes, one device each."""
        devices = [{"name": str(i), "containerEdits": {"deviceNodes": [{"path": n}]}} for i, n in enumerate(nodes)]
        return self.file(path, json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices}))

    def file(self, path: str, content: str) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return file

    def pci(self, *devices: tuple[str, str]) -> None:
        """Vendors and classes of devices on the bus. Entries are links, as in sysfs."""
        for number, (vendor, kind) in enumerate(devices):
            real = self.root / f"sys/devices/pci0000:00/0000:00:{number:02x}.0"
            real.mkdir(parents=True)
            (real / "vendor").write_text(f"{vendor}\n")
            (real / "class").write_text(f"{kind}\n")
            link = self.root / f"sys/bus/pci/devices/{real.name}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../../devices/pci0000:00/{real.name}")
