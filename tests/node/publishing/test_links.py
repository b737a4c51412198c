"""NVLinks are read once, published with the GPUs, and never keep a node from being published."""

import asyncio

import pytest

from gpushare.core.facts.model import Gpu
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.device import Device, Link
from gpushare.gpu.simulated import Simulated, device
from gpushare.node.gpus import Gpus
from gpushare.node.publishing import links
from gpushare.node.publishing.links import Links
from gpushare.obs import errors
from tests.node import world
from tests.node.world import capacity, running
from tests.support.tasks import beside
from tests.support.wait import eventually, until

THREE = [device(number, f"GPU-{number}", 8000) for number in range(3)]
LINKS = [Link("GPU-0", "GPU-1", 4), Link("GPU-0", "GPU-2"), Link("GPU-1", "GPU-2", 2)]
FULL = ("27454", "2")


class Asked(Simulated):
    """Counts who asks for its links. `answers`: it does so at once; else never."""

    def __init__(self, devices: list[Device], links: list[Link], *, answers: bool = True) -> None:
        super().__init__(devices, links=links)
        self.asked, self.answers = 0, answers

    async def links(self) -> list[Link]:
        self.asked += 1
        if not self.answers:
            await asyncio.Event().wait()
        return await super().links()


def test_a_link_is_told_from_both_ends_and_none_is_no_link() -> None:
    assert links.by_gpu(["GPU-0", "GPU-1", "GPU-2"], LINKS) == {
        "GPU-0": {"GPU-1": 4},
        "GPU-1": {"GPU-0": 4, "GPU-2": 2},
        "GPU-2": {"GPU-1": 2},
    }
    assert links.by_gpu(["GPU-0"], LINKS) == {"GPU-0": {}}


async def test_each_set_of_gpus_is_asked_for_once() -> None:
    driver = Asked(THREE, LINKS)
    gpus = Gpus(driver)
    await gpus.begin(30.0)
    found = Links(driver, gpus)
    async with beside(found.run()):
        await eventually(lambda: len(found.known) == 3)
        for devices in (THREE[:2], THREE, THREE[:2], THREE):
            gpus.devices = devices
            gpus.listeners[0]()
            for _ in range(5):
                await asyncio.sleep(0)
            assert found.known["GPU-1"] == ({"GPU-0": 4} if devices is not THREE else {"GPU-0": 4, "GPU-2": 2})
    assert found.known == links.by_gpu(["GPU-0", "GPU-1", "GPU-2"], LINKS)  # connected as before when it comes back
    assert driver.asked == 2


async def test_a_node_says_which_gpus_are_connected(server: ApiServer) -> None:
    connected = Simulated(world.devices(*world.SIZES), links=[Link("GPU-0", "GPU-1", 2)])
    async with running(server.url, connected):
        await until(server, lambda: [gpu.links for gpu in _gpus(server)] == [(("GPU-1", 2),), (("GPU-0", 2),)])
    writes = len(server.audit)
    async with running(server.url, connected) as node:  # knows from its predecessor what it will be told
        await eventually(lambda: not node.not_ready())
        await eventually(lambda: node.publisher is not None and node.publisher.done)
    assert len(server.audit) == writes


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_driver_that_does_not_tell_its_links_delays_nothing(
    server: ApiServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    driver = Asked(world.devices(*world.SIZES), [], answers=not hangs)

    async def fails(_: Simulated) -> list[Link]:
        raise errors.not_asked("the driver fails", "nvmlDeviceGetNvLinkState: unknown error", "nvidia-smi")

    if not hangs:
        monkeypatch.setattr(Simulated, "links", fails)
    async with running(server.url, driver) as node:
        await until(server, lambda: capacity(server) == FULL)
        await eventually(lambda: not node.not_ready())
        await eventually(lambda: driver.asked == 1)
        assert [gpu.links for gpu in _gpus(server)] == [(), ()]
        assert hangs or await eventually(lambda: links.UNKNOWN in caplog.text)


def _gpus(server: ApiServer) -> list[Gpu]:
    found = world.said(server)
    return list(world.published(server).gpus) if found else []
