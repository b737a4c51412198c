"""How GPUs are connected is read through the real binding; what is not told is left out."""

from collections.abc import AsyncIterator

import pytest

from gpushare.gpu.device import Link
from gpushare.gpu.nvml import Nvml
from gpushare.obs.errors import UserError
from tests.support.nvml.state import Mock, card, uuid

UNKNOWN = 999
SINGLE_SWITCH, SYSTEM = 10, 50


def bus(number: int) -> str:
    return f"00000000:{number + 16:02X}:00.0"


@pytest.fixture
async def gpus(mock: Mock) -> AsyncIterator[Nvml]:
    made = Nvml(wait=0.02)
    yield made
    await made.close()


async def test_nvlinks_are_counted_between_each_two_gpus_and_not_those_to_a_switch(gpus: Nvml, mock: Mock) -> None:
    mock.show(
        card(0, 16276, f"nvlink=0 {bus(1)}", f"nvlink=3 {bus(1)}", "nvlink=4 00000000:AB:00.0"),
        card(1, 16276, f"nvlink=0 {bus(0)}", f"nvlink=1 {bus(0)}"),
        card(2),
    )
    assert await gpus.links() == [Link(uuid(0), uuid(1), 2), Link(uuid(0), uuid(2)), Link(uuid(1), uuid(2))]


async def test_how_near_two_gpus_are_is_what_nvml_says(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, f"near={uuid(1)} {SINGLE_SWITCH}", f"near={uuid(2)} {SYSTEM}"), card(1), card(2))
    assert [(link.one, link.other, link.level) for link in await gpus.links()] == [
        (uuid(0), uuid(1), SINGLE_SWITCH),
        (uuid(0), uuid(2), SYSTEM),
        (uuid(1), uuid(2), None),
    ]


async def test_a_gpu_that_cannot_be_asked_has_no_links_and_the_others_have_theirs(gpus: Nvml, mock: Mock) -> None:
    mock.show(
        card(0, 16276, f"nvlink=0 {bus(1)}", f"fail=nvmlDeviceGetNvLinkState {UNKNOWN}"),
        card(1, 16276, f"nvlink=0 {bus(2)}"),
        card(2),
    )
    assert [link.nvlinks for link in await gpus.links()] == [0, 0, 1]


async def test_a_domain_of_four_digits_is_the_same_place_as_one_of_eight(gpus: Nvml, mock: Mock) -> None:
    mock.show(card(0, 16276, "nvlink=0 0000:11:00.0"), card(1))
    assert await gpus.links() == [Link(uuid(0), uuid(1), 1)]


async def test_without_a_driver_there_is_an_error_that_says_so(gpus: Nvml, mock: Mock) -> None:
    mock.path.unlink()
    with pytest.raises(UserError, match="the NVIDIA driver is not loaded"):
        await gpus.links()
    mock.show(card(0))
