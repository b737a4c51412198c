"""kubelet's device-plugins folder: waits until it is there, and makes sure that one plugin alone uses it.

Two plugins would each keep a table of their own and give the same units away twice. So the folder is locked (`flock`)
as long as the plugin runs. The lock is on the folder itself, not on a file in it: kubelet deletes all files there
whenever it starts, and a lock on a deleted file stops nobody. This lock needs no right to write, leaves nothing behind,
and ends with its process, also with one that was killed. A folder that is deleted and made anew is locked again.
Aliyun's and NVIDIA's plugins take no lock: their sockets answer instead.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import Final

from gpushare.core.facts import names
from gpushare.kubelet import paths
from gpushare.obs import errors, log


def nvidia_socket(resource: str) -> str:
    """The name of the socket for one of NVIDIA's resources, of its plugin and of ours in its place."""
    return f"nvidia-{resource.rpartition('/')[2]}.sock"


SOCKETS: Final = {names.GPU_MEM: "aliyungpushare.sock", names.GPU_COUNT: "aliyungpushare-count.sock"}
"""Ours, by resource. The first has the name of Aliyun's."""

TAKES_NO_LOCK: Final = (SOCKETS[names.GPU_MEM], *(nvidia_socket(resource) for resource in names.NVIDIA_GPUS))
LOOK_SECONDS: Final = 0.5
LOCKS: Final = Path("/proc/locks")

NOT_THERE: Final = "kubelet's socket is not there: {path}"
NOT_THERE_WHY: Final = "kubelet is down, or the folder is not mounted"
NOT_THERE_WAY: Final = "start kubelet, or mount its device-plugins folder at that path"
IN_USE: Final = "kubelet's folder {folder} is in use by another device plugin"
IN_USE_WAY: Final = (
    "stop the other plugin, or this one; what runs on this node: "
    "kubectl get pods -A --field-selector spec.nodeName={node}"
)

logger = log.get(__name__)


def not_there(folder: Path) -> errors.UserError:
    path = folder / paths.KUBELET_SOCKET
    return errors.not_asked(NOT_THERE.format(path=path), NOT_THERE_WHY, NOT_THERE_WAY)


async def lock(folder: Path, node: str, limit: float) -> int:
    """A descriptor: closing it gives the lock back. Waits so many seconds: a plugin that was replaced may still end."""
    loop = asyncio.get_running_loop()
    end, logged = loop.time() + limit, ""
    while True:
        try:
            return _lock(folder, node)
        except errors.UserError as error:
            if loop.time() >= end:
                raise
            if error.what != logged:
                logger.warn(error.what, waiting_seconds=limit, **error.fields())
                logged = error.what
        await asyncio.sleep(LOOK_SECONDS)


async def keep_locked(folder: Path, node: str, descriptor: int) -> None:
    """For ever: a folder that was deleted and made anew is locked again, under the same descriptor. Raises at once if
    another plugin has locked the new one."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        with contextlib.suppress(OSError):  # it is not there at the moment
            _lock_if_new(folder, node, descriptor)


def _lock_if_new(folder: Path, node: str, descriptor: int) -> None:
    there = _open(folder)
    try:
        if os.path.samestat(os.fstat(there), os.fstat(descriptor)):
            return
        user = _locked(folder, there)
        if user:
            raise _in_use(folder, user, node)
        os.dup2(there, descriptor, inheritable=False)
        logger.warn("kubelet's folder was made anew: locked again", folder=str(folder))
    finally:
        os.close(there)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def _lock(folder: Path, node: str) -> int:
    try:
        descriptor = _open(folder)
    except OSError:
        raise not_there(folder) from None
    try:
        user = _locked(folder, descriptor)
        for name in TAKES_NO_LOCK:
            user = user or _answering(folder / name)
        if user:
            raise _in_use(folder, user, node)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _in_use(folder: Path, user: str, node: str) -> errors.UserError:
    return errors.UserError(IN_USE.format(folder=folder), user, IN_USE_WAY.format(node=node))


def _locked(folder: Path, descriptor: int) -> str:
    """Which other process has locked the folder. Empty: none has, and it is locked for us."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _process(_locked_by(os.fstat(descriptor))) or "another gpushare has locked it"
    except OSError as error:
        logger.warn("cannot lock kubelet's folder, going on without", folder=str(folder), why=str(error))
    return ""


def _locked_by(folder: os.stat_result) -> int:
    """The process, as far as the kernel shows it: not if it is in another container. 0: unknown."""
    device = f"{os.major(folder.st_dev):02x}:{os.minor(folder.st_dev):02x}:{folder.st_ino}"
    with contextlib.suppress(OSError):
        for line in LOCKS.read_text().splitlines():
            _, kind, *_, pid, place, _, _ = line.split()
            if (kind, place) == ("FLOCK", device):
                return int(pid)
    return 0


def _answering(path: Path) -> str:
    """Who listens at a socket; empty if nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
        except OSError:
            return ""
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return _process(struct.unpack("3i", peer)[0]) or f"another plugin answers at {path.name}"


def _process(pid: int) -> str:
    """`by process 4711 (gpushare)`; empty if it is unknown."""
    if not pid:
        return ""
    with contextlib.suppress(OSError):
        return f"by process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return f"by process {pid}"
