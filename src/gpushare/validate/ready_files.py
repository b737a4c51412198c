"""The files of checks that have passed, where programs of this node wait for them: NVIDIA's names and contents.

Other containers have this folder, too, and this process may write to every device. So no link in it is followed, and
nothing but a plain file is read.
"""

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpushare.core.facts import names
from gpushare.obs import errors

OF_CHECK: Final = {"driver": "driver-ready", "toolkit": "toolkit-ready", "plugin": "plugin-ready",
                   "workload": "cuda-ready"}  # fmt: skip
CONTAINER_READY: Final = ".driver-ctr-ready"  # written by a driver container when its driver is loaded
LARGEST: Final = 4096  # bytes of a ready file
NOT_WRITTEN: Final = "the ready files cannot be written to {folder}"
WAY: Final = "mount the node's {folder} into this container; df and ls -l of that folder"


class ReadyFiles:
    def __init__(self, folder: Path = Path(names.VALIDATIONS_FOLDER)) -> None:
        self._folder = folder

    @property
    def container_ready(self) -> bool:
        return (self._folder / CONTAINER_READY).exists()

    def keep(self, passed: Mapping[str, str]) -> None:
        """Exactly the files of these checks, with these contents. Raises UserError."""
        problems = [why for check, name in OF_CHECK.items() if (why := self._kept(name, passed.get(check)))]
        if problems:
            what, way = NOT_WRITTEN.format(folder=self._folder), WAY.format(folder=self._folder)
            raise errors.not_asked(what, problems[0], way)

    def remove(self) -> None:
        """At the end: all of them. The folder stays: containers that wait have it mounted, and would never see a new
        one."""
        with contextlib.suppress(OSError):
            for name in OF_CHECK.values():
                (self._folder / name).unlink(missing_ok=True)

    def _kept(self, name: str, content: str | None) -> str:
        """What is in the way, if something is: one bad file does not keep another from being removed."""
        path = self._folder / name
        try:
            if content is None:
                path.unlink(missing_ok=True)
            elif _content(path) != content:
                self._write(path, content)
        except OSError as error:
            return f"{name}: {error.strerror}"
        return ""

    def _write(self, path: Path, content: str) -> None:
        """Whoever reads it finds all of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        draft.rename(path)


def _content(path: Path) -> str | None:
    """None: there is no plain file. A pipe would be waited for, a device would never end."""
    with contextlib.suppress(OSError, UnicodeError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return file.read(LARGEST).decode()
    return None
