"""Another config while it runs: chosen by the node's label or changed in its file; a broken one changes nothing."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpushare.node.nvidia import app, config_source
from gpushare.node.nvidia.config_source import Found, Places
from gpushare.node.nvidia.rules.settings import Settings
from tests.node import world
from tests.node.nvidia.world import GPU, SHARED, Machine, sliced
from tests.support import embedded_objects
from tests.support.wait import eventually, until

LABEL = "nvidia.com/device-plugin.config"


def label(machine: Machine, config: str | None) -> None:
    world.patch(machine.server, {"metadata": {"labels": {LABEL: config}}})


async def test_the_label_chooses_the_config_while_it_runs(machine: Machine) -> None:
    (machine.configs / "default").write_text("version: v1")
    (machine.configs / "many").write_text(sliced(5))
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=2)
        label(machine, "many")
        await machine.offers(gpu=10)
        sold = [{"resource": GPU, "replicas": 5, "sharing": "time-slicing"}]
        await until(machine.server, lambda: machine.sold() == sold)
        label(machine, None)
        await machine.offers(gpu=2)


async def test_a_changed_content_is_used_and_kubelet_is_not_told_anew_for_it(machine: Machine) -> None:
    (machine.configs / "default").write_text(sliced(2))
    async with machine.kubelet(), machine.selling() as node:
        await machine.offers(gpu=4)
        (machine.configs / "default").write_text(sliced(3))
        await machine.offers(gpu=6)
        assert node.plugin is not None
        assert node.plugin.endpoint is not None
        assert node.plugin.endpoint.registrations == 1
        await asyncio.sleep(0.1)  # it is read several times meanwhile
        told = [text for _, reason, _, text in embedded_objects.events(machine.server) if reason == "ConfigUsed"]
        assert told == ["config default: 3 × nvidia.com/gpu for each GPU"]


async def test_another_name_is_another_resource_and_the_old_one_ends(machine: Machine) -> None:
    (machine.configs / "default").write_text(sliced(2))
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=4)
        (machine.configs / "default").write_text(sliced(2, renamed=True))
        await machine.offers(gpu=0, gpu_shared=4)
        assert not (machine.folder / "nvidia-gpu.sock").exists()
        assert (await machine.run_pod("a", 1, SHARED))["NVIDIA_VISIBLE_DEVICES"]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            "version: v1\nsharing: {timeSlicing: {resource: []}}",
            'config: unknown key "resource" in sharing.timeSlicing',
        ),
        ("a: [", "the config default is not YAML"),
        (sliced(1_000_000), "2 GPUs with 1,000,000 replicas each are 2,000,000 devices"),
    ],
    ids=["misspelt", "no yaml", "too many"],
)
async def test_a_broken_config_changes_nothing_and_is_told_once(machine: Machine, config: str, says: str) -> None:
    (machine.configs / "default").write_text(sliced(2))
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=4)
        (machine.configs / "default").write_text(config)
        told = await until(machine.server, lambda: world.warnings(machine.server))
        await asyncio.sleep(0.1)  # it is read several times meanwhile
        assert len(told) == len(world.warnings(machine.server)) == 1
        (reason, name, text), *_ = told
        assert (reason, name) == ("ConfigNotUsed", world.NAME)
        assert text.startswith(says)
        assert text.endswith("keeping config default")
        await machine.offers(gpu=4)
        (machine.configs / "default").write_text(sliced(3))
        await machine.offers(gpu=6)


async def test_a_label_that_names_no_config_changes_nothing(machine: Machine) -> None:
    (machine.configs / "default").write_text(sliced(2))
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=4)
        label(machine, "none-such")
        await until(machine.server, lambda: any("none-such" in text for _, _, text in world.warnings(machine.server)))
        await machine.offers(gpu=4)


async def test_what_nvidias_plugin_would_ignore_is_told(machine: Machine) -> None:
    (machine.configs / "default").write_text("resources: {gpus: [{pattern: '*', name: fast}]}")
    async with machine.kubelet(), machine.selling():
        told = await until(machine.server, lambda: world.warnings(machine.server))
        assert told[0][2] == "config default: resources: names cannot be changed; ignored"


async def test_sighup_reads_the_config_at_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LOOK_SECONDS", 3600.0)
    (machine.configs / "default").write_text(sliced(2))
    async with machine.kubelet(), machine.selling() as node:
        app.look_at_sighup(node)
        await machine.offers(gpu=4)
        await eventually(lambda: not node.not_ready())
        await asyncio.sleep(0.05)  # the writes to the node have woken it
        (machine.configs / "default").write_text(sliced(3))
        os.kill(os.getpid(), signal.SIGHUP)
        await machine.offers(gpu=6)


async def test_a_broken_config_at_the_start_is_told_and_waited_for(machine: Machine) -> None:
    (machine.configs / "default").write_text("flag: {}")
    async with machine.kubelet(), machine.selling() as node:
        await eventually(lambda: 'config default: unknown key "flag"' in node.not_ready())
        assert node.dead() == ""
        told = await until(machine.server, lambda: world.warnings(machine.server))
        assert told[0][2].endswith("; nothing is sold until it is corrected")
        (machine.configs / "default").write_text(sliced(2))
        await machine.offers(gpu=4)
        await eventually(lambda: not node.not_ready())


async def test_a_broken_config_is_the_reason_why_it_is_not_ready(machine: Machine) -> None:
    (machine.configs / "default").write_text(sliced(2))
    async with machine.kubelet(), machine.selling() as node:
        await eventually(lambda: not node.not_ready())
        (machine.configs / "default").write_text("a: [")
        await eventually(lambda: node.not_ready().startswith("config default: the config default is not YAML: "))
        label(machine, "none-such")
        await eventually(lambda: "none-such" in node.not_ready())
        label(machine, None)
        (machine.configs / "default").write_text(sliced(2))
        await eventually(lambda: not node.not_ready())


async def test_one_config_file_needs_no_label(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(sliced(7))
    async with machine.kubelet(), machine.selling(machine.config(places=Places(file=str(file)))):
        await machine.offers(gpu=14)


async def test_a_broken_config_is_worked_out_once_and_a_mended_one_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.configs / "default").write_text(sliced(2))
    read: list[str] = []
    settle = config_source.settle

    def counted(found: Found, given: Mapping[str, str], environment: Mapping[str, str]) -> Settings:
        read.append(found.text)
        return settle(found, given, environment)

    monkeypatch.setattr(config_source, "settle", counted)
    async with machine.kubelet(), machine.selling():
        await machine.offers(gpu=4)
        (machine.configs / "default").write_text("a: [")
        await eventually(lambda: "a: [" in read)
        await asyncio.sleep(0.1)  # it is looked at several times meanwhile
        assert read.count("a: [") == 1
        (machine.configs / "default").write_text(sliced(3))
        await machine.offers(gpu=6)
