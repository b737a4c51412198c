"""The files of checks that have passed, where programs of this node wait for them: NVIDIA's names and contents."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpushare.core.facts import names
from gpushare.obs import errors

OF_CHECK: Final = {"driver": "driver-ready", "toolkit": "toolkit-ready", "plugin": "plugin-ready",
                   "workload": "cuda-ready"}  # fmt: skip
CONTAINER_READY: Final = ".driver-ctr-ready"  # written by a driver container when its driver is loaded
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
        try:
            for check, name in OF_CHECK.items():
                path = self._folder / name
                if check not in passed:
                    path.unlink(missing_ok=True)
                elif _content(path) != passed[check]:
                    self._write(path, passed[check])
        except OSError as error:
            what, way = NOT_WRITTEN.format(folder=self._folder), WAY.format(folder=self._folder)
            raise errors.not_asked(what, str(error.strerror), way) from None

    def remove(self) -> None:
        """At the end: all of them. The folder stays: containers that wait have it mounted, and would never see a new
        one."""
        with contextlib.suppress(OSError):
            for name in OF_CHECK.values():
                (self._folder / name).unlink(missing_ok=True)

    def _write(self, path: Path, content: str) -> None:
        """Whoever reads it finds all of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(content)
        draft.rename(path)


def _content(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeError):
        return path.read_text()
    return None
