"""The few things that are done to files of the control plane, each wholly or not at all, even if power fails."""

import errno
import os
from pathlib import Path
from typing import Final

READABLE: Final = 0o644  # kube-scheduler may run as another user
MARK: Final = ".gpushare-"  # how names of files begin that are not in place yet: kubelet skips names with a dot


def write(path: Path, content: bytes, *, like: Path | None = None, mode: int = READABLE) -> None:
    """`like`: with the owner and the mode of that file."""
    part = path.with_name(f"{MARK}{path.name}")
    part.unlink(missing_ok=True)  # of a run that was killed
    try:
        _fill(part, content, like, mode)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    move(part, path)


def _fill(part: Path, content: bytes, like: Path | None, mode: int) -> None:
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if like is not None:
            same = like.stat()
            os.fchown(descriptor, same.st_uid, same.st_gid)
            mode = same.st_mode & 0o7777
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)


def move(source: Path, target: Path) -> None:
    """In one step: whoever reads the target sees the old file or the new one."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write(target, source.read_bytes(), like=source)  # another file system: by way of a hidden file there
        source.unlink()
    _sync(target.parent)


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _sync(path.parent)


def make_folder(path: Path, mode: int) -> None:
    path.mkdir(mode=mode, parents=True, exist_ok=True)


def remove_folder(path: Path) -> None:
    """If nothing is in it."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
