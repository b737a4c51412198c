"""Links from /dev/char to NVIDIA's device nodes, as NVIDIA's validator makes them.

runc with systemd lists the devices of a container by these links. Without them every container loses its GPUs at the
next `systemctl daemon-reload`: "Failed to initialize NVML: Unknown Error".
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NOT_MADE: Final = "links in /dev/char cannot be made ({why}): systemctl daemon-reload may take GPUs from containers"


def make(folder: Path, nodes: Mapping[str, tuple[int, int]]) -> str:
    """Makes those that are missing in that folder. Returns a warning if that is not possible."""
    for name, (major, minor) in sorted(nodes.items()):
        if not major:
            continue
        link, target = folder / f"{major}:{minor}", f"../{name}"
        if _is(link, target):
            continue
        try:
            folder.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        except OSError as error:
            return NOT_MADE.format(why=str(error.strerror).lower())
    return ""


def _is(link: Path, target: str) -> bool:
    with contextlib.suppress(OSError):
        return os.readlink(link) in (target, f"/dev/{target[3:]}")  # noqa: PTH115 - its text counts
    return False
