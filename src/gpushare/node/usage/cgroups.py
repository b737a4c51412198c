"""Whose a process is: the text of /proc/PID/cgroup names its pod and its container.

Pure. kubelet names the cgroup of a pod, the container runtime that of a container below it. A process may be in a
cgroup further below. What is written in another way is of nobody: nothing is guessed.
"""

import itertools
import re
from collections.abc import Container, Iterable
from typing import Final

from gpushare.node.usage.model import Owner

# The uid of a pod: of the API server, or of a static pod, which is a hash without dashes.
UID: Final = r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
ID: Final = r"(?P<id>[0-9a-f]{64})"
QOS: Final = "(?:-burstable|-besteffort)?"

# systemd: the name repeats all slices above it, also that of kubelet's option --cgroup-root. With cgroupfs it does not.
SLICE: Final = re.compile(rf"(?:.+-)?kubepods{QOS}-pod{UID}\.slice")
FOLDER: Final = re.compile(f"pod{UID}")
ABOVE: Final = ("kubepods", "burstable", "besteffort", "..")  # a folder of a pod
CONTAINER: Final = re.compile(rf"(?:cri-containerd|crio|docker)-{ID}\.scope")
PLAIN: Final = re.compile(f"(?:crio-)?{ID}")  # cgroupfs
# kubelet uses systemd and the runtime does not: a common mistake, with which containers run all the same.
MIXED: Final = re.compile(rf"(?:.+-)?kubepods{QOS}-pod{UID}\.slice:cri-containerd:{ID}")


def owners(text: str) -> tuple[Owner, ...]:
    """The containers that it is in, the outermost first; empty: none, or nobody can say. A node may itself be a
    container of a pod, and a container may make cgroups below its own, with any names. Version 1 has several lines:
    what they agree on counts."""
    paths = {line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2}
    found = [one for path in paths if (one := _of_path(path))]
    agreed = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*found, strict=False))
    return tuple(level[0] for level in agreed)


def owner(found: Iterable[Owner], pods: Container[str]) -> Owner | None:
    """The outermost one that is of this node. Whoever runs in it can name what is below it, so that does not count.
    `pods`: uids of all pods of this node, as kubelet knows them."""
    return next((one for one in found if not one.pod_uid or one.pod_uid in pods), None)


def _of_path(path: str) -> list[Owner]:
    parts = [part for part in path.split("/") if part]
    found = _neighbour(parts)
    for at, part in enumerate(parts):
        if mixed := MIXED.fullmatch(part):
            found.append(Owner(_uid(mixed), mixed["id"]))
        pod = SLICE.fullmatch(part) or (at and parts[at - 1] in ABOVE and FOLDER.fullmatch(part))
        if pod:
            container = _container(parts[at + 1]) if at + 1 < len(parts) else ""
            if not container:
                break
            found.append(Owner(_uid(pod), container))
    return found


def _neighbour(parts: list[str]) -> list[Owner]:
    """In a cgroup namespace of its own a process sees others from where it is: `/../NAME` is in the same pod, of which
    the path has no name. The id of a container is enough."""
    container = _container(parts[1]) if len(parts) > 1 and parts[0] == ".." else ""
    return [Owner("", container)] if container else []


def _container(part: str) -> str:
    """Its id. A monitor of CRI-O (`crio-conmon-…`) is no container."""
    found = CONTAINER.fullmatch(part) or PLAIN.fullmatch(part)
    return found["id"] if found else ""


def _uid(found: re.Match[str]) -> str:
    return found["uid"].replace("_", "-")
