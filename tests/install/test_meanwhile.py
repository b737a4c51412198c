"""What others do to the files while the command runs, and disks that are full or may not be written."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpushare.install import app, files
from gpushare.install.plan import Plan
from gpushare.install.proof import NotProven
from gpushare.install.store import LOCK, STATE, Store
from gpushare.obs.errors import UserError
from tests.install import texts
from tests.install.machine import Machine

BY_DIGEST = b"registry.k8s.io/kube-scheduler@sha256:" + b"0" * 64
ANOTHER = app.Wish("http://10.0.0.7:12345/gpushare-scheduler")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def host(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def during(host: Machine, monkeypatch: pytest.MonkeyPatch, step: str, text: bytes) -> None:
    """Somebody writes the manifest in this step."""

    async def write(_: Plan) -> str:
        host.text = text
        host.file.write_bytes(text)
        raise NotProven("another manifest runs")

    async def write_only(_: Plan) -> None:
        host.text = text
        host.file.write_bytes(text)

    monkeypatch.setattr(host, step, write if step == "proven" else write_only)


async def test_a_manifest_that_is_written_between_plan_and_move_stays(
    host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    during(host, monkeypatch, "check", texts.kubeadm("1.28"))
    with pytest.raises(UserError, match="has changed meanwhile"):
        await host.install()
    assert host.is_as_before


async def test_a_manifest_that_is_written_while_the_scheduler_is_waited_for_stays(
    host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    during(host, monkeypatch, "proven", texts.kubeadm("1.28"))
    with pytest.raises(UserError, match="another manifest runs") as error:
        await host.install()
    assert error.value.code == app.FAILED
    assert any("left as it is" in line for line in host.said)
    assert host.is_as_before


async def test_an_edit_of_our_manifest_is_not_taken_for_ours(host: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = texts.made(host.text).after.replace(b"--leader-elect=true", b"--leader-elect=true\n    - -v=4")
    during(host, monkeypatch, "proven", edited)
    with pytest.raises(UserError, match="another manifest runs"):
        await host.install()
    assert host.file.read_bytes() == edited
    with pytest.raises(UserError, match="the backup has not that change"):
        await host.revert()


async def test_an_image_by_digest_is_reverted_without_a_version(tmp_path: Path) -> None:
    image = next(line for line in texts.kubeadm().splitlines() if b"image:" in line).split()[-1]
    host = Machine(tmp_path, texts.kubeadm().replace(image, BY_DIGEST))
    await host.install(app.Wish(texts.URL, "1.36"))
    await host.revert()
    assert host.said[-1] == "kube-scheduler runs as before"
    assert host.is_as_before


def full_from(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The disk is full from the write with this number on, half-way through it; how many there were."""
    count, real = 0, files._fill

    def fill(part: Path, content: bytes, *more: Any) -> None:
        nonlocal count
        count += 1
        if count > step:
            real(part, content[: len(content) // 2], *more)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(part, content, *more)

    monkeypatch.setattr(files, "_fill", fill)
    return lambda: count


async def test_a_disk_that_is_full_at_any_write_leaves_nothing_half(tmp_path: Path) -> None:
    for step in range(5):
        host = Machine(tmp_path / str(step))
        with pytest.MonkeyPatch.context() as monkeypatch:
            full_from(step, monkeypatch)
            with pytest.raises(UserError, match="no space left on device") as error:
                await host.install()
        assert error.value.what.startswith("/etc/kubernetes/gpushare/"), error.value.what
        assert not list(host.root.rglob(f"{files.MARK}*"))
        assert host.is_as_before, (step, list(host.root.rglob("*")))
        await host.install()
        await host.revert()
        assert host.is_as_before


async def test_a_change_on_a_full_disk_keeps_what_worked(host: Machine) -> None:
    await host.install()
    good = host.file.read_bytes()
    for step in range(5):
        with pytest.MonkeyPatch.context() as monkeypatch:
            full_from(step, monkeypatch)
            with pytest.raises(UserError, match="no space left on device"):
                await host.install(ANOTHER)
        assert host.file.read_bytes() == good
        assert host.is_whole
    await host.install(ANOTHER)
    await host.revert()
    assert host.is_as_before


async def test_a_folder_of_manifests_that_may_not_be_written_is_said(
    host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(self: Path, target: Path) -> Path:
        if Path(target) == host.file:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self), None, str(target))
        os.rename(self, target)  # noqa: PTH104 - the real one
        return target

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(UserError, match="read-only file system"):
        await host.install()
    assert host.is_as_before


async def test_a_backup_that_is_gone_is_said(host: Machine) -> None:
    await host.install()
    (host.store.folder / STATE / "original.yaml").unlink()
    for step in (host.revert(), host.install(ANOTHER)):
        with pytest.raises(UserError, match="no such file") as error:
            await step
        assert error.value.what.startswith("/etc/kubernetes/gpushare/install/original.yaml")


def test_a_lock_whose_file_was_removed_is_no_lock(host: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ends removes the file. Another one has opened it just before, and a third one has made a new one."""
    lock = host.store.folder / STATE / LOCK
    real = Path.open

    def open_late(self: Path, mode: str = "r") -> Any:
        file = real(self, mode)
        self.unlink()
        return file

    monkeypatch.setattr(Path, "open", open_late)
    with pytest.raises(UserError, match="somebody else is at it"), Store(host.root, texts.NAME).locked():
        pass
    assert not lock.exists()
