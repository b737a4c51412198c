"""A driver that hangs is said to hang, within a bound, and asked again later; nothing that is left behind stays."""

import asyncio
import threading

import pytest

from gpushare.gpu import nvml
from gpushare.gpu.nvml import MOST_STUCK, Nvml
from gpushare.obs.errors import UserError
from tests.gpu.conftest import come_back, is_initialised
from tests.support.nvml.state import Mock, card

SOON = 0.05
LATER = 0.25  # long enough to come to where it hangs
FUNCTIONS = ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceRegisterEvents"]


def hang(mock: Mock, function: str) -> None:
    mock.show(card(0), rules=(f"hang={function}",))


def threads() -> int:
    return sum(thread.name == "nvml" for thread in threading.enumerate())


@pytest.mark.parametrize("function", FUNCTIONS)
async def test_a_call_that_hangs_is_named_and_given_up(mock: Mock, function: str) -> None:
    hang(mock, function)
    gpus = Nvml(limit=LATER)
    with pytest.raises(UserError) as raised:
        await gpus.devices()
    assert raised.value.what == "the NVIDIA driver does not answer"
    named = function.removesuffix("_v2")
    assert raised.value.why == f"{named} has not come back for 0.25 s; that call is abandoned"
    assert "reboot the node" in raised.value.way


async def test_waiting_for_errors_that_hangs_is_given_up_too(mock: Mock) -> None:
    hang(mock, "nvmlEventSetWait_v2")
    gpus = Nvml(limit=LATER)
    with pytest.raises(UserError, match="nvmlEventSetWait has not come back"):
        await gpus.xids()


@pytest.mark.parametrize("function", FUNCTIONS)
async def test_a_driver_that_no_longer_hangs_is_used_again_and_let_go_of(mock: Mock, function: str) -> None:
    hang(mock, function)
    gpus = Nvml(limit=SOON)
    with pytest.raises(UserError):
        await gpus.devices()
    mock.show(card(0))
    gpus = Nvml()
    assert len(await gpus.devices()) == 1
    come_back()
    assert is_initialised()  # what came back has not taken the driver from who uses it now
    await gpus.close()
    assert not is_initialised()  # and has let go of what it had


async def test_one_gpu_that_hangs_is_enough(mock: Mock) -> None:
    mock.show(card(0), card(1, 40536, "hang=nvmlDeviceGetName"))
    gpus = Nvml(limit=LATER)
    with pytest.raises(UserError, match="nvmlDeviceGetName has not come back"):
        await gpus.devices()


async def test_a_driver_that_keeps_hanging_gets_no_thread_for_every_question(mock: Mock) -> None:
    hang(mock, "nvmlDeviceGetCount_v2")
    gpus = Nvml(limit=SOON, wait=0.01)
    said = []
    for ask in [gpus.devices, gpus.xids] * MOST_STUCK:
        with pytest.raises(UserError) as raised:
            await ask()
        said.append(raised.value.why)
    assert threads() == MOST_STUCK
    assert said[MOST_STUCK:] == ["3 abandoned calls have not come back; no more are made until one does"] * MOST_STUCK
    mock.show(card(0))
    come_back()
    assert len(await gpus.devices()) == 1
    await gpus.close()
    assert not is_initialised()


async def test_a_slow_call_within_the_limit_is_no_failure(mock: Mock) -> None:
    mock.show(card(0), rules=("slow=nvmlDeviceGetName 20",))
    gpus = Nvml()
    assert len(await gpus.devices()) == 1
    await gpus.close()


async def test_who_stops_waiting_leaves_nothing_open(mock: Mock) -> None:
    gpus = Nvml()
    hang(mock, "nvmlDeviceGetName")
    asking = asyncio.create_task(gpus.devices())
    await asyncio.sleep(0)  # it asks now, and cannot get an answer before the hanging ends
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    mock.show(card(0))
    come_back()
    assert not is_initialised()
    assert len(await gpus.devices()) == 1
    await gpus.close()


async def test_closing_ends_although_the_driver_does_not(mock: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "CLOSE_SECONDS", SOON)
    gpus = Nvml()
    await gpus.devices()
    hang(mock, "nvmlShutdown")
    await gpus.close()
    assert threads() == 1
