"""What other containers put into the folder of ready files, odd files of the machine, and words that never end."""

import asyncio
import os
from pathlib import Path

import pytest

from gpushare.core.annotations import validation
from gpushare.core.annotations.validation import Check
from gpushare.core.facts import intree
from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError
from gpushare.obs.errors import UserError
from gpushare.validate.checks import Toolkit
from gpushare.validate.machine.asking import NOT_STARTED, Asking
from gpushare.validate.ready_files import ReadyFiles
from gpushare.validate.rules import verdict
from gpushare.validate.rules.driver import Candidate
from gpushare.validate.rules.verdict import Verdict
from gpushare.validate.workload import pod, trial
from gpushare.validate.workload.trial import Config, Trial
from tests.support.wait import PATIENCE
from tests.validate.machine import Machine

QUOTA = 'pods "gpushare-validate-{name}" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1'
RBAC = 'pods is forbidden: User "system:serviceaccount:ns:x" cannot create resource "pods" in API group ""'
SECURITY = 'pods "gpushare-validate-abcde" is forbidden: violates PodSecurity "restricted:latest": x'


def test_a_link_under_the_name_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "disk"
    victim.write_text("precious")
    folder = tmp_path / "validations"
    folder.mkdir()
    (folder / f".driver-ready.{os.getpid()}").symlink_to(victim)
    ReadyFiles(folder).keep({"driver": "IS_HOST_DRIVER=true\n"})
    assert victim.read_text() == "precious"
    assert not (folder / "driver-ready").is_symlink()
    assert (folder / "driver-ready").read_text() == "IS_HOST_DRIVER=true\n"


def test_a_link_under_the_name_of_a_ready_file_is_replaced(tmp_path: Path) -> None:
    victim = tmp_path / "disk"
    victim.write_text("")
    folder = tmp_path / "validations"
    folder.mkdir()
    (folder / "toolkit-ready").symlink_to(victim)
    ReadyFiles(folder).keep({"toolkit": ""})
    assert not (folder / "toolkit-ready").is_symlink()


async def test_a_pipe_under_the_name_of_a_ready_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "driver-ready")
    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(ReadyFiles(tmp_path).keep, {"driver": "x\n"})
    assert (tmp_path / "driver-ready").read_text() == "x\n"


def test_a_file_that_cannot_be_replaced_is_named_and_others_are_still_removed(tmp_path: Path) -> None:
    (tmp_path / "driver-ready").mkdir()
    (tmp_path / "cuda-ready").touch()
    with pytest.raises(UserError, match="driver-ready: Is a directory"):
        ReadyFiles(tmp_path).keep({"driver": "x\n"})
    assert not (tmp_path / "cuda-ready").exists()


@pytest.mark.parametrize("content", ["{", "[" * 100_000], ids=["half", "deep"])
async def test_a_broken_cdi_spec_of_nvidia_is_said(machine: Machine, content: str) -> None:
    machine.file("/etc/cdi/nvidia.json", content)
    said = await Toolkit(machine.places()).verdict()
    assert said.state == "failed"
    assert said.why.startswith("CDI spec /etc/cdi/nvidia.json cannot be read: ")
    assert "nvidia-ctk cdi generate" in said.way


async def test_a_machine_that_can_start_no_process_is_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **more: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", full)
    answer = await Asking(machine.places()).ask(Candidate("/usr/lib64/libnvidia-ml.so.1", True))
    assert (answer.what, answer.why) == (NOT_STARTED, "resource temporarily unavailable")


def test_a_reason_is_never_longer_than_an_annotation_can_bear() -> None:
    said = verdict.failed("x" * 300_000, "y")
    assert len(said.why) == verdict.LONGEST
    written = validation.write({"workload": Check(said.state, "", said.why, said.way)})
    assert len(written) < 2 * verdict.LONGEST


def test_the_same_fault_has_the_same_words_at_each_try() -> None:
    """Else each try would be an event, and a write of the node."""
    words = "{id} of {uid}: gpushare-validate-{name} of {image} with GPU-0a1b2c3d-0000-1111-2222-333344445555"
    image = "r.example/g@sha256:" + "a" * 64
    first, second = (
        pod.steady(verdict.failed(words.format(id=one * 64, uid=uid, name=one * 5, image=image), ""))
        for one, uid in (("b", "0a1b2c3d-0000-1111-2222-333344445555"), ("c", "1a1b2c3d-0000-1111-2222-333344445555"))
    )
    assert first == second
    assert image in first.why
    assert "GPU-0a1b2c3d-0000-1111-2222-333344445555" in first.why


@pytest.mark.parametrize(
    ("status", "words", "way"),
    [
        (403, QUOTA.format(name="x7k2p"), trial.SEE_ADMISSION.format(namespace="gpu-operator")),
        (403, SECURITY, trial.SEE_ADMISSION.format(namespace="gpu-operator")),
        (500, 'failed calling webhook "a.b.c"', trial.SEE_ADMISSION.format(namespace="gpu-operator")),
        (403, RBAC, trial.SEE_RIGHTS),
        (500, "etcdserver: request timed out", trial.SEE_RIGHTS),
    ],
)
async def test_who_refuses_the_pod_decides_the_way_out(
    status: int, words: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: Trial, found: intree.Node) -> Verdict:
        raise ApiError(status, "Forbidden", words)

    monkeypatch.setattr(Trial, "_run", refuse)
    async with client.connect(login.Access("http://127.0.0.1:1")) as api:
        said = await Trial(api, Config("gpu-a", "gpu-operator")).run(intree.Node())
    assert said.way == way
    assert "x7k2p" not in said.why
