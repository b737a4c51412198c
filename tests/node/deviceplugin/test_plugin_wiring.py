"""Where a device plugin pins, it runs in the same process; where not, it is not even loaded."""

import asyncio
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gpushare.core.facts.model import NodeFacts
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu.device import Xid
from gpushare.gpu.simulated import Simulated
from gpushare.kube.events import Recorder
from gpushare.kubelet import paths
from gpushare.node import kubelet_folder
from gpushare.node.app import Config
from gpushare.node.part import NOT_REGISTERED
from gpushare.obs.errors import UserError
from tests.node import world
from tests.node.world import capacity, refusal, running, said
from tests.support.wait import eventually, until


class StandIn:
    """A device plugin that remembers what it is told."""

    made: ClassVar["list[StandIn]"] = []
    refuses: UserError | None = None

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.told: list[NodeFacts] = []
        self.endpoints = [types.SimpleNamespace(registered=False)]
        self.told_before_it_ran = False
        self.made.append(self)

    def set_gpus(self, facts: NodeFacts) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.told.append(facts)

    async def run(self) -> None:
        self.told_before_it_ran = bool(self.told)
        await asyncio.Event().wait()


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    monkeypatch.setattr(StandIn, "made", [])
    monkeypatch.setattr(StandIn, "refuses", None)
    monkeypatch.setitem(sys.modules, "gpushare.node.deviceplugin.plugin", types.SimpleNamespace(Plugin=StandIn))
    return StandIn.made


@pytest.fixture
def config(kubelet: Path) -> Config:
    return Config(world.NAME, "MiB", "plugin", port=0, kubelet=str(kubelet))


async def test_the_plugin_hears_of_every_change_and_kubelet_reports_the_capacity(
    server: ApiServer, gpus: Simulated, plugins: list[StandIn], config: Config
) -> None:
    async with running(server.url, gpus, config) as node:
        await until(server, lambda: said(server))
        (plugin,) = plugins
        await eventually(lambda: plugin.told_before_it_ran)
        assert await eventually(lambda: node.not_ready() == NOT_REGISTERED)
        plugin.endpoints[0].registered = True
        assert node.not_ready() == ""
        assert (plugin.given["node"], plugin.given["unit"]) == (world.NAME, "MiB")
        assert plugin.given["pods"] is node.pods
        assert isinstance(plugin.given["events"], Recorder)
        gpus.report(Xid("GPU-0", 79))
        await eventually(lambda: [gpu.healthy for gpu in plugin.told[-1].gpus] == [False, True])
        await eventually(lambda: [gpu.healthy for gpu in plugin.told[-1].gpus] == [True, True])
    found = said(server)
    assert found is not None
    assert found["pin"] == "plugin"
    assert capacity(server) == (None, None)


async def test_a_node_that_the_plugin_refuses_is_not_published(
    server: ApiServer, gpus: Simulated, plugins: list[StandIn], config: Config
) -> None:
    StandIn.refuses = UserError("gpu-a: --memory-unit=MiB is too fine for this node", "many units", "--pin=direct")
    assert await refusal(server.url, gpus, config) is StandIn.refuses
    assert said(server) is None


async def test_beside_another_plugin_it_changes_nothing_and_stops(
    server: ApiServer, gpus: Simulated, plugins: list[StandIn], config: Config
) -> None:
    async with running(server.url, gpus, config):
        await until(server, lambda: said(server))
        before = said(server)
        other = Simulated(world.devices(4000))
        error = await refusal(server.url, other, config, says="waiting for kubelet's device-plugins folder")
        assert isinstance(error, UserError)
        assert error.what == f"kubelet's folder {config.kubelet}/device-plugins is in use by another device plugin"
        assert error.code == 2
        assert said(server) == before
    assert len(plugins) == 1
    async with running(server.url, gpus, config):
        await eventually(lambda: len(plugins) == 2)


async def test_it_keeps_the_others_out_when_kubelets_folder_is_made_anew(
    server: ApiServer, gpus: Simulated, plugins: list[StandIn], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_folder, "LOOK_SECONDS", 0.01)
    folder = Path(config.kubelet, paths.DEVICE_PLUGINS)
    async with running(server.url, gpus, config):
        await until(server, lambda: said(server))
        Path.rmdir(folder)
        Path.mkdir(folder)
        await asyncio.sleep(0.1)
        with pytest.raises(UserError, match="is in use by another device plugin"):
            await kubelet_folder.lock(folder, world.NAME, 0)


async def test_without_the_admission_policy_auto_means_the_plugin(
    server: ApiServer, gpus: Simulated, plugins: list[StandIn], config: Config
) -> None:
    async with running(server.url, gpus, config._replace(pin="auto")):
        await until(server, lambda: (said(server) or {}).get("pin") == "plugin")
        assert len(plugins) == 1


def test_a_node_that_pins_directly_loads_no_grpc() -> None:
    program = (
        "import sys, gpushare.node.app; sys.exit(bool({'grpc', 'google.protobuf', 'pynvml'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0
