"""Files of the machine, read below a folder where its root is mounted: library, device nodes, PCI bus, programs, specs.

Links are followed as on the machine itself: an absolute one begins at that folder, and none leads out of it.
"""

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from gpushare.validate.rules import driver, toolkit
from gpushare.validate.rules.toolkit import Spec

MOST_LINKS: Final = 40  # as the kernel
VENDOR, GPU_CLASS = "0x10de", "0x03"  # NVIDIA's; display controllers
PCI: Final = "/sys/bus/pci/devices"
LARGEST_SPEC: Final = 4 << 20  # bytes
DEVICES: Final = "nvidia"  # how the names of device nodes begin


class Places(NamedTuple):
    """`root`: where the machine's root is mounted. All other paths are as on the machine. `real_root`: what is mounted
    there."""

    root: Path = Path("/")
    real_root: str = "/"
    driver_root: str = "/run/nvidia/driver"
    toolkit: str = toolkit.INSTALL_FOLDER

    def inside(self, path: str) -> Path:
        """Where that path is for this process, whether it is there or not."""
        at, rest, links = self.root, list(PurePosixPath(path).parts), 0
        while rest:
            part = rest.pop(0)
            if part == "/":
                at = self.root
            elif part == "..":
                at = at.parent if at != self.root else at
            else:
                target = _link(at / part) if links < MOST_LINKS else None
                links += target is not None
                rest[:0] = PurePosixPath(target).parts if target is not None else ()
                at = at if target is not None else at / part
        return at

    def there(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            return self.inside(path).exists()
        return False


def libraries(places: Places, container_ready: bool) -> driver.Libraries:
    return driver.Libraries(
        _library(places, ""), _library(places, places.driver_root), _has_files(places), container_ready
    )


def signature(places: Places, library: str) -> tuple[object, ...]:
    """Another one after the driver was installed again."""
    return library, *_version(places.inside(library))


def dev_root(places: Places, of_host: bool) -> str:
    """The folder above dev with the device nodes: a driver container may have its own."""
    return "" if of_host or not places.there(f"{places.driver_root}/dev/nvidiactl") else places.driver_root


def device_nodes(places: Places, below: str = "") -> dict[str, tuple[int, int]]:
    """NVIDIA's, by name: the major and minor number, 0 for what is no device."""
    found = {}
    with contextlib.suppress(OSError):
        for path in places.inside(f"{below}/dev").iterdir():
            if path.name.startswith(DEVICES):
                with contextlib.suppress(OSError):
                    found[path.name] = _numbers(path.stat())
    return found


def pci_gpus(places: Places) -> int | None:
    """How many GPUs of NVIDIA are on the bus; None: it cannot be read."""
    try:
        devices = list(places.inside(PCI).iterdir())
    except OSError:
        return None
    # The entries are links, which lead to where they lead on this machine: /sys is the same everywhere.
    return sum(_word(device / "vendor") == VENDOR and _word(device / "class")[:4] == GPU_CLASS for device in devices)


def programs(places: Places) -> list[str]:
    folders = (*toolkit.FOLDERS, f"{places.toolkit}/toolkit")
    paths = [f"{folder}/{program}" for program in toolkit.PROGRAMS for folder in folders]
    return [path for path in paths if places.there(path)]


class Specs:
    """The CDI specs about NVIDIA's GPUs. A file that has not changed is not read again."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._read: dict[Path, tuple[tuple[int, ...], Spec | None]] = {}

    def found(self) -> list[Spec]:
        before, self._read = self._read, {}
        for folder in toolkit.CDI_FOLDERS:
            for path in _files(self._places.inside(folder)):
                if path.suffix in toolkit.CDI_ENDINGS and path not in self._read:
                    version = _version(path)
                    known = before.get(path)
                    spec = known[1] if known and known[0] == version else _spec(path, f"{folder}/{path.name}")
                    self._read[path] = version, spec
        return [spec for _, spec in self._read.values() if spec is not None]


def _library(places: Places, below: str) -> str:
    paths = (f"{below}{folder}/{driver.LIBRARY}" for folder in driver.FOLDERS)
    return next((path for path in paths if places.there(path)), "")


def _has_files(places: Places) -> bool:
    return bool(next(_files(places.inside(places.driver_root)), None))


def _files(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(folder.iterdir())


def _version(path: Path) -> tuple[int, ...]:
    """Of a file's content; empty: there is no file."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns
    return ()


def _spec(path: Path, name: str) -> Spec | None:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_SPEC).decode()
        return toolkit.read(name, _decoded(path, text))
    except OSError as error:
        return Spec(name, problem=str(error.strerror))
    except (ValueError, RecursionError) as error:
        return Spec(name, problem=str(error).partition("\n")[0]) if toolkit.OWN in path.name else None


def _decoded(path: Path, text: str) -> object:
    if path.suffix == ".json":
        return json.loads(text)
    import yaml  # costs time to load

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(getattr(error, "problem", None) or str(error)) from None


def _numbers(found: os.stat_result) -> tuple[int, int]:
    return (os.major(found.st_rdev), os.minor(found.st_rdev)) if stat.S_ISCHR(found.st_mode) else (0, 0)


def _link(path: Path) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path would drop a closing slash of the link's text, and costs more
    except OSError:
        return None


def _word(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeError):
        return path.read_text().strip()
    return ""
