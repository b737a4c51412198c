"""The folders of MPS on a node: pipes, logs and reports; who may use them; and files that appear at once and whole."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpushare.core.facts import names
from gpushare.core.facts.mps import status
from gpushare.core.facts.mps.status import Status
from gpushare.obs import errors

LOCK: Final = ".lock"
HOST_IPC: Final = "ipc:[4026531839]"  # the kernel's first one, which is the machine's
NOT_HOSTS_SHM: Final = (
    "/dev/shm is not the node's: clients in other pods cannot reach the MPS server (set hostIPC: true in this pod)"
)


class Places(NamedTuple):
    """`pipe`: where clients find the daemon. `state`: where reports, records and logs are."""

    pipe: Path = Path(names.MPS_PIPE_FOLDER)
    state: Path = Path(names.MPS_STATUS_FOLDER)
    proc: Path = Path("/proc")

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def ready(self) -> Path:
        return self.state / status.READY


def prepare(places: Places) -> None:
    """Makes the folders. Clients of every user look into that of the pipes."""
    for folder in (places.pipe, places.state, places.log):
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            way = f"mount the node's {folder} into this container, or remove the file of that name"
            raise errors.not_asked(f"the folder {folder} cannot be made", str(error.strerror), way) from None


def lock(places: Places) -> int:
    """For this process alone, until its descriptor is closed. Raises UserError while another supervisor runs."""
    prepare(places)
    try:
        descriptor = os.open(places.state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _not_written(places, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        why = "it has locked " + str(places.state) if isinstance(error, BlockingIOError) else str(error.strerror)
        way = "end that one first: one daemon serves all GPUs of a node"
        raise errors.not_asked("another gpushare mps runs on this node", why, way) from None
    return descriptor


def report(places: Places, said: Status) -> None:
    """How the daemon is, for the node part; and the ready file, which exists only while it serves clients."""
    try:
        if said.state != "up":
            places.ready.unlink(missing_ok=True)
        replace(places.state / status.FILE, status.write(said))
        if said.state == "up":
            places.ready.touch()
    except OSError as error:
        raise _not_written(places, error) from None


def said_up(places: Places) -> bool:
    """Whether the last report says that the daemon serves clients, however old it is."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.json.decode((places.state / status.FILE).read_bytes(), type=Status).state == "up"
    return False


def replace(path: Path, content: bytes, *, lasting: bool = False) -> None:
    """Whoever reads it finds the old content or the new one. `lasting`: also if the machine stops right afterwards."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(content)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    draft.rename(path)


def shm_problem(places: Places) -> str:
    """Why clients in other pods may not reach the server; empty if they can."""
    own = _ipc(places.proc / "self")
    first = _ipc(places.proc / "1") if os.getpid() != 1 else ""
    return "" if own in (HOST_IPC, "") or own == first else NOT_HOSTS_SHM


def _not_written(places: Places, error: OSError) -> errors.UserError:
    what = f"the MPS daemon's state cannot be written to {places.state}"
    return errors.not_asked(what, str(error.strerror), "df and ls -l of that folder")


def _ipc(process: Path) -> str:
    with contextlib.suppress(OSError):
        return str((process / "ns" / "ipc").readlink())
    return ""
