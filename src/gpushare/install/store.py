"""The files of one control plane: the manifest, our configurations, the backup, and the record of what was done.

The record is written before the manifest is replaced, and says by digests which texts are ours. So after a kill at any
point it is known whether the manifest is the old one, the new one, or one that somebody else has written since.
"""

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from gpushare.install import files
from gpushare.install.entries import FOLDER
from gpushare.install.refusals import refused

STATE: Final = "install"  # in our folder: the backup and the record
ORIGINAL, PREVIOUS, NEW = "original.yaml", "previous.yaml", "new.yaml"
RECORD, LOCK = "record.json", "lock"
OURS: Final = re.compile(r"(scheduler|policy)-[0-9a-f]{8}\.(yaml|json)")
NOT_ROOT: Final = "run it as root on a control plane, or use deploy/install-scheduler.yaml"
FILE_WAY: Final = "look at it with ls -l and df, then run this again: it goes on from there; or run it with --revert"


class Record(msgspec.Struct, frozen=True):
    manifest: str  # its path
    original: str  # digests of texts of the manifest: before gpushare,
    previous: str  # before the last change,
    after: str  # and as changed
    proven: bool  # the scheduler has run with it
    version: int = 1


class Store:
    """`root`: where the machine's own root is; not `/` inside a pod."""

    def __init__(self, root: Path, manifest: str) -> None:
        self._root, self.path = root, manifest
        self.file, self.folder = self.on_machine(manifest), self.on_machine(FOLDER)
        self._state = self.folder / STATE

    def on_machine(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def read(self, path: str) -> bytes:
        """A file of the machine, by its path there."""
        try:
            return self.on_machine(path).read_bytes()
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise refused(f"{path} cannot be read", why, NOT_ROOT) from None

    def manifest(self) -> bytes:
        if self.file.is_symlink():
            why = f"it leads to {self.file.readlink()}, and a new file would replace the link"
            raise refused(f"{self.path} is a link", why, "--manifest with the path of the file itself")
        if not self.file.exists():
            why = "kube-scheduler is no static pod of this machine, or its manifest is elsewhere"
            way = "--manifest FILE; where kube-scheduler is not a static pod: deploy/gpu-scheduler.yaml"
            raise refused(f"{self.path} does not exist", why, way)
        return self.read(self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes anything meanwhile."""
        try:
            files.make_folder(self.folder, 0o755)
            files.make_folder(self._state, 0o700)
            lock = (self._state / LOCK).open("a")
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise refused(f"{FOLDER} cannot be written", why, NOT_ROOT) from None
        with lock:
            self._lock(lock)
            try:
                yield
            except OSError as error:
                what = f"{self._by_name(error.filename)} cannot be read or written"
                raise refused(what, (error.strerror or str(error)).lower(), FILE_WAY) from None
            finally:
                with contextlib.suppress(OSError):
                    self._leave_empty()

    def _lock(self, lock: IO[str]) -> None:
        """Whoever had it before may have removed the file: then it is nobody's lock any more."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock.fileno()), (self._state / LOCK).stat()):
                return
        except (BlockingIOError, FileNotFoundError):
            pass
        why = f"another gpushare install-scheduler has {FOLDER}/{STATE}/{LOCK}"
        raise refused("somebody else is at it", why, "wait until it has ended") from None

    def _by_name(self, path: str | None) -> str:
        """A path as on the machine."""
        found = Path(path or self.folder)
        return f"/{found.relative_to(self._root)}" if found.is_relative_to(self._root) else str(found)

    def record(self) -> Record | None:
        """None: nothing was installed here."""
        try:
            record = msgspec.json.decode((self._state / RECORD).read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            why, way = str(error), f"look at {FOLDER}/{STATE}: {ORIGINAL} is the manifest as it was before gpushare"
            raise refused(f"{FOLDER}/{STATE}/{RECORD} cannot be read", why, way) from None
        if record.manifest != self.path:
            why, way = f"{record.manifest} was changed on this machine before", f"--manifest {record.manifest} --revert"
            raise refused("kube-scheduler has two manifests here?", why, way)
        return record

    def original(self) -> bytes:
        return (self._state / ORIGINAL).read_bytes()

    def previous(self) -> bytes:
        return (self._state / PREVIOUS).read_bytes()

    # The steps, in this order

    def keep(self, original: bytes, previous: bytes, after: bytes) -> None:
        """Backups, and the record of what comes now."""
        for name, content in ((ORIGINAL, original), (PREVIOUS, previous)):
            files.write(self._state / name, content, mode=0o600)
        self._write(Record(self.path, digest(original), digest(previous), digest(after), proven=False))

    def put(self, path: str, content: bytes) -> None:
        """A configuration."""
        files.write(self.on_machine(path), content)

    def move_in(self, text: bytes, before: bytes) -> None:
        """Replaces the manifest in one step, by a copy that was written outside its folder. `before`: what it replaces;
        a manifest that somebody else has written meanwhile stays."""
        new = self._state / NEW
        files.write(new, text, like=self.file)
        if self.manifest() != before:
            files.remove(new)
            why = "somebody, or kubeadm, has written it while this command ran"
            raise refused(
                f"{self.path} has changed meanwhile", why, "run this again: it begins with the manifest of now"
            )
        files.move(new, self.file)

    def settle(self) -> None:
        """What is in place is proven, or was so before."""
        record, text = self.record(), self.manifest()
        assert record is not None
        if digest(text) == record.original or (digest(text) not in (record.previous, record.after) and not _ours(text)):
            self.forget()
            return
        if digest(text) not in (record.previous, record.after):  # somebody else's, with parts of ours: he is asked
            return
        self._write(msgspec.structs.replace(record, previous=digest(text), after=digest(text), proven=True))
        files.remove(self._state / PREVIOUS)
        self._tidy(text + self.original())

    def forget(self) -> None:
        """Nothing of ours is in the manifest any more: removes all our files, also what a killed run has left."""
        for name in (RECORD, ORIGINAL, PREVIOUS, NEW):
            files.remove(self._state / name)
        self._tidy(self.manifest())

    def _write(self, record: Record) -> None:
        files.write(self._state / RECORD, msgspec.json.encode(record) + b"\n", mode=0o600)

    def _tidy(self, used: bytes) -> None:
        """Removes our configurations that are not named there, and what killed runs have left."""
        for path in (*self.folder.iterdir(), *self._state.iterdir(), *self.file.parent.glob(f"{files.MARK}*")):
            left = path.name.startswith(files.MARK)
            if left or (OURS.fullmatch(path.name) and os.fsencode(path.name) not in used):
                files.remove(path)

    def _leave_empty(self) -> None:
        if not (self._state / RECORD).exists():
            files.remove(self._state / LOCK)
        files.remove_folder(self._state)
        files.remove_folder(self.folder)


def _ours(text: bytes) -> bool:
    return FOLDER.encode() in text


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
