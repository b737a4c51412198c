"""Files on a control plane: installed, put back byte by byte, rolled back, and killed at every step."""

import copy
import errno
import functools
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare.install import app, files
from gpushare.install.store import Store
from gpushare.obs.errors import UserError
from tests.install import machine, texts
from tests.install.machine import Killed, Machine

CONFIGURATION = Path(texts.made(texts.kubeadm()).path).name
ANOTHER = app.Wish("http://10.0.0.7:12345/gpushare-scheduler")

composed, parsed = functools.cache(yaml.compose), yaml.safe_load_all


@functools.cache
def documents(text: str) -> list[Any]:
    return list(parsed(text))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here, and the same few texts are read once, not at every step."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(yaml, "compose", composed)
    monkeypatch.setattr(yaml, "safe_load_all", lambda text: copy.deepcopy(documents(text)))


@pytest.fixture
def host(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def ours(host: Machine) -> list[str]:
    """Our files, by name."""
    return sorted(path.name for path in host.store.folder.rglob("*") if path.is_file())


async def test_the_manifest_is_replaced_and_the_diff_is_shown(host: Machine) -> None:
    await host.install()
    assert host.file.read_bytes() == (texts.DATA / "edited-1.36.yaml").read_bytes()
    assert host.shown.startswith(f"--- {texts.NAME}\n+++ {texts.NAME}\n")
    assert "+- urlPrefix: http://127.0.0.1:12345/gpushare-scheduler" in host.shown
    assert host.said[-1] == "done: it works"
    assert ours(host) == ["lock", "original.yaml", "record.json", CONFIGURATION]


async def test_the_new_manifest_has_owner_and_mode_of_the_old_one(host: Machine) -> None:
    host.file.chmod(0o640)
    await host.install()
    assert host.file.stat().st_mode & 0o777 == 0o640


async def test_the_second_run_has_nothing_to_do_and_asks_nobody(host: Machine) -> None:
    await host.install()
    checked, before = host.checked, host.file.stat()
    await host.install()
    assert host.said[-1].startswith("nothing to do")
    assert (host.checked, host.file.stat()) == (checked, before)


async def test_revert_puts_back_the_exact_bytes_and_leaves_nothing(host: Machine) -> None:
    await host.install()
    await host.revert()
    assert host.is_as_before
    assert not host.store.folder.exists()
    await host.revert()
    assert host.said[-1].startswith("nothing to revert")
    assert host.is_as_before


async def test_files_of_others_in_our_folder_stay(host: Machine) -> None:
    host.store.folder.mkdir()
    (host.store.folder / "ca.crt").write_text("mine")
    await host.install()
    await host.revert()
    assert ours(host) == ["ca.crt"]


async def test_what_does_not_work_is_put_back(host: Machine) -> None:
    host.works = False
    with pytest.raises(UserError, match="it says no") as error:
        await host.install()
    assert error.value.code == app.FAILED
    assert host.is_as_before


async def test_a_change_that_does_not_work_goes_back_to_the_last_one_that_did(host: Machine) -> None:
    await host.install()
    good = host.file.read_bytes()
    host.works = False
    with pytest.raises(UserError, match="it says no"):
        await host.install(ANOTHER)
    assert host.file.read_bytes() == good
    assert ours(host) == ["lock", "original.yaml", "record.json", CONFIGURATION]
    await host.revert()
    assert host.is_as_before


async def test_after_a_change_of_the_url_revert_still_knows_the_first_manifest(host: Machine) -> None:
    await host.install()
    await host.install(ANOTHER)
    assert len([name for name in ours(host) if name.startswith("scheduler-")]) == 1
    await host.revert()
    assert host.is_as_before


async def test_a_manifest_that_kubeadm_has_written_anew_is_the_new_original(host: Machine) -> None:
    await host.install()
    host.text = texts.kubeadm("1.28")
    host.file.write_bytes(host.text)
    await host.install()
    await host.revert()
    assert host.is_as_before


async def test_after_kubeadm_has_written_it_anew_there_is_nothing_to_revert(host: Machine) -> None:
    await host.install()
    host.text = texts.kubeadm("1.28")
    host.file.write_bytes(host.text)
    await host.revert()
    assert host.is_as_before


async def test_a_manifest_that_somebody_changed_after_us_is_not_reverted(host: Machine) -> None:
    await host.install()
    changed = host.file.read_bytes().replace(b"--leader-elect=true", b"--leader-elect=true\n    - -v=4")
    host.file.write_bytes(changed)
    for step in (host.revert(), host.install(ANOTHER)):
        with pytest.raises(UserError, match="somebody has changed it"):
            await step
    assert host.file.read_bytes() == changed
    await host.install()
    assert host.said[-1].startswith("nothing to do")


async def test_a_manifest_that_was_changed_by_hand_has_no_backup_to_revert_to(host: Machine) -> None:
    plan = texts.made(host.text)
    host.file.write_bytes(plan.after)
    (host.root / plan.path.lstrip("/")).parent.mkdir()
    (host.root / plan.path.lstrip("/")).write_bytes(plan.content)
    with pytest.raises(UserError, match="no backup"):
        await host.revert()


async def test_a_damaged_backup_is_not_put_back(host: Machine) -> None:
    await host.install()
    (host.store.folder / "install" / "original.yaml").write_text("something")
    with pytest.raises(UserError, match="backup was changed"):
        await host.revert()


async def test_a_damaged_record_is_said(host: Machine) -> None:
    await host.install()
    (host.store.folder / "install" / "record.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        await host.install()


async def test_two_at_once_are_refused(host: Machine) -> None:
    with host.store.locked(), pytest.raises(UserError, match="somebody else is at it"):
        await host.install()


async def test_the_folder_of_manifests_may_be_another_file_system(
    host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    await host.install()
    assert host.is_whole
    await host.revert()
    assert host.is_as_before


def test_a_link_and_a_missing_manifest_are_refused(host: Machine) -> None:
    host.file.rename(host.file.with_name("real.yaml"))
    with pytest.raises(UserError, match="does not exist"):
        host.store.manifest()
    host.file.symlink_to("real.yaml")
    with pytest.raises(UserError, match="is a link"):
        host.store.manifest()


def test_a_file_that_may_not_be_read_is_said(host: Machine) -> None:
    with pytest.raises(UserError, match="no such file"):
        host.store.read("/etc/kubernetes/none.yaml")


# Killed. After each step the scheduler could be started, and the next run, or a revert, mends it.


def _is_proven(host: Machine) -> bool:
    record = host.store.record()
    return record is not None and record.proven


async def _killed(host: Machine, step: int, *, revert: bool, wish: app.Wish = machine.WISH) -> bool:
    """Whether it was killed; else it had fewer steps."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        machine.killed_at(step, monkeypatch)
        try:
            await (host.revert() if revert else host.install(wish))
        except Killed:
            return True
    return False


@pytest.mark.parametrize("mended_by", ["install", "revert"])
async def test_an_install_that_is_killed_at_any_step_is_mended(tmp_path: Path, mended_by: str) -> None:
    step = 0
    while True:
        host = Machine(tmp_path / str(step))
        killed = await _killed(host, step, revert=False)
        assert host.is_whole
        if mended_by == "install":
            await host.install()
            assert host.file.read_bytes() == (texts.DATA / "edited-1.36.yaml").read_bytes()
        await host.revert()
        assert host.is_as_before, (step, list(host.root.rglob("*")))
        if not killed:
            break
        step += 1
    assert step > 10


async def test_a_change_that_is_killed_at_any_step_is_mended(tmp_path: Path) -> None:
    step = 0
    while True:
        host = Machine(tmp_path / str(step))
        await host.install()
        killed = await _killed(host, step, revert=False, wish=ANOTHER)
        assert host.is_whole
        await host.install(ANOTHER)
        assert ANOTHER.url in next(host.store.folder.glob("scheduler-*")).read_text()
        await host.revert()
        assert host.is_as_before
        if not killed:
            break
        step += 1
    assert step > 10


@pytest.mark.parametrize("works", [True, False])
async def test_a_killed_change_is_judged_by_the_next_run(tmp_path: Path, works: bool) -> None:
    """What was moved in and not proven is proven then, or put back."""
    step = 0
    while True:
        host = Machine(tmp_path / f"{works}-{step}")
        killed = await _killed(host, step, revert=False)
        host.works = works
        if works:
            await host.install()
        elif killed and not _is_proven(host):
            with pytest.raises(UserError, match="it says no"):
                await host.install()
            assert host.is_as_before
        if not killed:
            break
        step += 1


async def test_a_roll_back_that_is_killed_at_any_step_is_mended(tmp_path: Path) -> None:
    step = 0
    while True:
        host = Machine(tmp_path / str(step))
        host.works = False
        try:
            killed = await _killed(host, step, revert=False)
        except UserError:
            killed = False
        assert host.is_whole
        host.works = True
        await host.revert()
        assert host.is_as_before
        if not killed:
            break
        step += 1


async def test_a_revert_that_is_killed_at_any_step_is_mended(tmp_path: Path) -> None:
    step = 0
    while True:
        host = Machine(tmp_path / str(step))
        await host.install()
        killed = await _killed(host, step, revert=True)
        assert host.is_whole
        await host.revert()
        assert host.is_as_before
        if not killed:
            break
        step += 1
    assert step > 5


async def test_ctrl_c_puts_the_manifest_back(host: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "proven", interrupted)
    with pytest.raises(KeyboardInterrupt):
        await host.install()
    assert host.is_as_before


async def test_a_revert_without_a_cluster_says_that_it_could_not_look(host: Machine) -> None:
    await host.install()
    with host.store.locked():
        await app.revert(host.store, machine.WISH, None, host.said.append, host.said.append)
    assert host.is_as_before
    assert "cannot be asked" in host.said[-1]


def test_a_hidden_file_of_a_killed_run_is_no_obstacle(tmp_path: Path) -> None:
    target = tmp_path / "a"
    (tmp_path / f"{files.MARK}a").write_text("half")
    files.write(target, b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert Store(tmp_path, "/a").manifest() == b"whole"
