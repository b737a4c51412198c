"""Compute modes are read and set through the real binding, and every way to fail is told in words."""

from collections.abc import AsyncIterator

import pytest

from gpushare.gpu import compute_mode
from gpushare.gpu.compute_mode import DEFAULT, EXCLUSIVE_PROCESS, NotAllowed
from gpushare.gpu.nvml import Nvml
from gpushare.obs.errors import UserError
from tests.support.nvml.state import DRIVER, Mock, card, uuid

NO_PERMISSION, UNKNOWN = 4, 999


@pytest.fixture
async def gpus(mock: Mock) -> AsyncIterator[Nvml]:
    made = Nvml(wait=0.02, limit=0.5)
    yield made
    await made.close()


async def test_a_mode_that_is_set_is_read_back_and_others_keep_theirs(gpus: Nvml, mock: Mock) -> None:
    assert (await gpus.modes()).by_uuid == {uuid(0): DEFAULT, uuid(1): DEFAULT}
    await gpus.set_mode(uuid(1), EXCLUSIVE_PROCESS)
    assert await gpus.modes() == (DRIVER, {uuid(0): DEFAULT, uuid(1): EXCLUSIVE_PROCESS}, {})


async def test_a_process_without_rights_is_told_so(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0), rules=(f"fail=nvmlDeviceSetComputeMode {NO_PERMISSION}",))
    with pytest.raises(NotAllowed, match="this process may not set the compute mode of GPUs") as raised:
        await gpus.set_mode(uuid(0), EXCLUSIVE_PROCESS)
    assert raised.value.code == 3
    assert "root" in raised.value.way


@pytest.mark.parametrize(
    ("shown", "why"), [((f"fail=nvmlDeviceSetComputeMode {UNKNOWN}",), "Unknown"), (("mig=1",), "Not Supported")]
)
async def test_a_gpu_that_refuses_is_named_with_the_mode(
    gpus: Nvml, mock: Mock, shown: tuple[str, ...], why: str
) -> None:
    mock.show(card(0, 16276, *shown))
    with pytest.raises(UserError, match=f"{uuid(0)} cannot be set to EXCLUSIVE_PROCESS: {why}"):
        await gpus.set_mode(uuid(0), EXCLUSIVE_PROCESS)


async def test_a_gpu_that_is_gone_cannot_be_set(gpus: Nvml, mock: Mock) -> None:
    with pytest.raises(UserError, match="shows no such GPU"):
        await gpus.set_mode(uuid(7), EXCLUSIVE_PROCESS)


async def test_a_gpu_that_does_not_tell_its_mode_hides_no_other(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, f"fail=nvmlDeviceGetComputeMode {UNKNOWN}"), card(1))
    modes = await gpus.modes()
    assert modes.by_uuid == {uuid(1): DEFAULT}
    assert list(modes.unknown) == [uuid(0)]


async def test_a_driver_that_hangs_is_given_up(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0), rules=("hang=nvmlDeviceGetComputeMode",))
    with pytest.raises(UserError, match="does not answer: nvmlDeviceGetComputeMode"):
        await gpus.modes()


async def test_a_driver_without_gpus_is_told(gpus: Nvml, mock: Mock) -> None:
    mock.show()
    with pytest.raises(UserError, match="shows no GPU"):
        await gpus.modes()


def test_modes_have_the_names_of_nvidia_smi() -> None:
    assert (compute_mode.name(0), compute_mode.name(3), compute_mode.name(9)) == ("DEFAULT", "EXCLUSIVE_PROCESS", "9")
