"""Simulated GPUs answer as real ones do, and say what they are."""

import pytest

from gpushare.gpu import simulated
from gpushare.gpu.device import Backend, Xid
from gpushare.gpu.simulated import Simulated
from gpushare.obs.errors import UserError


@pytest.fixture
def gpus() -> Simulated:
    return Simulated([simulated.device(0, "a", 16276), simulated.device(1, "b", 40536)])


async def test_their_name_says_what_they_are(gpus: Backend) -> None:
    assert {device.name for device in await gpus.devices()} == {"simulated GPU"}


async def test_they_can_be_lost_and_come_back_in_their_place(gpus: Simulated) -> None:
    gpus.lose("a")
    assert [device.uuid for device in await gpus.devices()] == ["b"]
    gpus.put(simulated.device(0, "a", 16276))
    assert [device.uuid for device in await gpus.devices()] == ["a", "b"]


async def test_what_is_reported_arrives_once_and_together(gpus: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "WAIT_SECONDS", 0.01)
    gpus.report(Xid("a", 79))
    gpus.report(Xid(None, 48))
    assert await gpus.xids() == [Xid("a", 79), Xid(None, 48)]
    assert await gpus.xids() == []


async def test_every_question_can_be_made_to_fail(gpus: Simulated) -> None:
    gpus.fail(UserError("the driver is away", "a test says so", "wait"))
    for ask in (gpus.devices, gpus.xids):
        with pytest.raises(UserError, match="the driver is away"):
            await ask()
    gpus.fail(None)
    assert len(await gpus.devices()) == 2
