"""Whose processes are: their cgroups name the pod and the container. Reads the /proc of the node.

The file is read in each pass. That costs no more than asking whether a pid was reused, and a process that is moved, or
another one with the same pid, is never taken for the one before.
"""

import contextlib
import os
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Final

from gpushare.node.usage import cgroups, sight
from gpushare.node.usage.model import Owner

OWN: Final = "/proc"
LONGEST: Final = 16_384  # bytes of a cgroup file


class Processes:
    """`proc`: where a person says the node's processes are; empty: this process's own /proc, if it shows them."""

    def __init__(self, proc: str = "") -> None:
        self._proc = proc or OWN
        self._owners: dict[bytes, tuple[Owner, ...]] = {}  # by the text of the file, of the last pass
        self.unknown = self._unknown(told=bool(proc))

    def of(self, pids: Iterable[int], pods: Container[str]) -> Mapping[int, Owner]:
        """Those that are of no container of these pods, or gone, are left out."""
        if self.unknown:
            return {}
        owners, before = {}, self._owners
        self._owners = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                text = _read(f"{self._proc}/{pid}/cgroup")
                found = self._owners[text] = before[text] if text in before else cgroups.owners(_text(text))
                if (owner := cgroups.owner(found, pods)) is not None:
                    owners[pid] = owner
        return owners

    def _unknown(self, *, told: bool) -> str:
        """Asked once: a process stays in its namespace, and mounts of a container do not change."""
        try:
            status = _text(_read(f"{self._proc}/self/status"))
            pids = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
            seen = sight.Seen(
                namespace=str(Path(self._proc, "self/ns/pid").readlink()),
                pids=len(pids),
                own=_text(_read(f"{self._proc}/self/cgroup")),
                first=_text(_read(f"{self._proc}/1/cgroup")),
            )
        except OSError as error:
            return sight.UNREADABLE.format(proc=self._proc, why=error.strerror)
        return sight.unknown(seen, told=told)


def _read(path: str) -> bytes:
    """Without the layers of a file object: 40 of them are read in each pass."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, LONGEST)
    finally:
        os.close(file)


def _text(content: bytes) -> str:
    """Names of processes and cgroups may be any bytes."""
    return content.decode(errors="replace")
