"""Compute modes are recorded before they are changed, and put back from that record, whatever happened between."""

import json
from pathlib import Path

import msgspec
import pytest

from gpushare.gpu.compute_mode import DEFAULT, EXCLUSIVE_PROCESS
from gpushare.mps.control import Trouble
from gpushare.mps.modes import FILE, Modes
from gpushare.obs.errors import UserError
from tests.mps.world import FakeGpus

PROHIBITED = 2


def recorded(folder: Path) -> object:
    return json.loads((folder / FILE).read_bytes())["modes"]


async def test_the_modes_before_are_recorded_before_one_is_changed(tmp_path: Path) -> None:
    gpus = FakeGpus()
    gpus.by_uuid["GPU-1"] = PROHIBITED
    gpus.refuses = {"GPU-0": "it is busy"}
    with pytest.raises(Trouble, match="the compute mode of GPU-0 cannot be set: it is busy"):
        await Modes(gpus, tmp_path).take()
    assert gpus.set == []
    assert recorded(tmp_path) == {"GPU-0": DEFAULT, "GPU-1": PROHIBITED}


async def test_after_a_crash_the_true_original_is_known(tmp_path: Path) -> None:
    gpus = FakeGpus()
    await Modes(gpus, tmp_path).take()
    await Modes(gpus, tmp_path).take()  # the next process: the driver says EXCLUSIVE_PROCESS by now
    assert recorded(tmp_path) == {"GPU-0": DEFAULT, "GPU-1": DEFAULT}
    assert await Modes(gpus, tmp_path).put_back()
    assert gpus.by_uuid == {"GPU-0": DEFAULT, "GPU-1": DEFAULT}
    assert not (tmp_path / FILE).exists()


async def test_without_a_record_nothing_is_put_back(tmp_path: Path) -> None:
    gpus = FakeGpus()
    gpus.by_uuid["GPU-0"] = EXCLUSIVE_PROCESS
    assert await Modes(gpus, tmp_path).put_back()
    assert gpus.set == []


async def test_what_cannot_be_put_back_stays_recorded(tmp_path: Path) -> None:
    gpus = FakeGpus()
    modes = Modes(gpus, tmp_path)
    await modes.take()
    gpus.refuses = {"GPU-1": "it is lost"}
    assert not await modes.put_back()
    assert recorded(tmp_path) == {"GPU-1": DEFAULT}
    gpus.refuses = {}
    assert await modes.put_back()


@pytest.mark.parametrize("content", ["", "{", '{"version": 2, "modes": {}}', '{"version": 1, "modes": {"a": "x"}}'])
async def test_a_spoiled_record_is_named_and_nothing_is_changed(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    gpus = FakeGpus()
    with pytest.raises(UserError, match=r"the record of compute modes .* cannot be read") as raised:
        await Modes(gpus, tmp_path).take()
    assert raised.value.code == 3
    assert gpus.set == []
    assert (tmp_path / FILE).read_text() == content


async def test_a_folder_that_cannot_be_written_keeps_the_modes_as_they_are(tmp_path: Path) -> None:
    gpus = FakeGpus()
    with pytest.raises(UserError, match="compute modes cannot be recorded"):
        await Modes(gpus, tmp_path / "no-such").take()
    assert gpus.set == []


async def test_mig_is_waited_for_and_an_old_driver_is_not(tmp_path: Path) -> None:
    gpus = FakeGpus()
    gpus.listed[1] = msgspec.structs.replace(gpus.listed[1], mig=True)
    with pytest.raises(Trouble, match="MIG is enabled on GPU-1: MPS needs GPUs without it"):
        await Modes(gpus, tmp_path).take()
    with pytest.raises(UserError, match=r"driver 470\.82\.01 is too old for MPS with memory limits") as raised:
        await Modes(FakeGpus(driver="470.82.01"), tmp_path).take()
    assert raised.value.code == 3
