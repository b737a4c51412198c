"""The whole validator on the embedded API server: annotation, events, ready files, probes, figures, an orderly end."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from gpushare.core.annotations import node_gpus
from gpushare.core.annotations.validation import Checks
from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, Pin
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.kube import client, requests, resources
from gpushare.kube.auth import login
from gpushare.kube.scraping.server import Listening
from gpushare.obs import http, metrics
from gpushare.validate import app, keeper, node
from gpushare.validate.app import Config, Validator
from gpushare.validate.workload import pod, trial
from tests.support import embedded_objects
from tests.support.wait import eventually, until
from tests.validate.machine import Machine

NAME = "gpu-a"
GPUS = (Gpu(0, "GPU-0", 16276, True, ""), Gpu(1, "GPU-1", 16276, True, ""))
Object = dict[str, Any]


def merged(name: str, annotations: dict[str, str]) -> requests.Request:
    """The embedded API server knows no server-side apply."""
    return requests.patch(
        resources.NODES, "", name, {"metadata": {"annotations": {names.VALIDATION: None, **annotations}}}
    )


class World:
    def __init__(self, server: ApiServer, machine: Machine) -> None:
        self.server, self.machine, self.folder = server, machine, machine.folder / "validations"
        self.part_is_not_ready = ""
        self.node_part = ""  # the address of its /readyz

    @contextlib.asynccontextmanager
    async def running(self, listen: Listening | None = None) -> AsyncIterator[Validator]:
        config = Config(
            trial.Config(NAME, "default", image="gpushare:1"), self.machine.places(), self.folder, self.node_part,
            status_listen=listen,
        )  # fmt: skip
        async with client.connect(login.Access(self.server.url)) as api:
            made = Validator(config, api)
            work = asyncio.create_task(made.run())
            try:
                yield made
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                await made.end()

    @property
    def annotations(self) -> dict[str, str]:
        entry = self.server.store.get("nodes", NAME)
        assert entry is not None
        return dict(entry.obj()["metadata"].get("annotations") or {})

    def said(self) -> Checks:
        return msgspec.json.decode(self.annotations.get(names.VALIDATION, "{}"), type=Checks)

    async def says(self, **states: str) -> Checks:
        def matches() -> Checks | None:
            said = self.said()
            return said if all(name in said and said[name].state == state for name, state in states.items()) else None

        return await until(self.server, matches)

    @property
    def there(self) -> set[str]:
        return {file.name for file in self.folder.iterdir()} if self.folder.exists() else set()

    @property
    def pods(self) -> list[Object]:
        shelf = self.server.store.shelf("pods")
        return [shelf.entries[key].obj() for key in shelf.keys]

    async def run_pod(self) -> None:
        """As scheduler and kubelet do."""
        made = await until(self.server, lambda: next(iter(self.pods), None))
        name, patch = made["metadata"]["name"], {"metadata": {"annotations": {names.ALLOCATION: '{"0":{"1":1}}'}}}
        self.server.registry.patch(embedded_objects.PODS, "default", name, embedded_objects.MERGE, patch, "")
        ended = {"terminated": {"exitCode": 0, "message": json.dumps({"gpus": ["GPU-1"]})}}
        status = [{"name": pod.CONTAINER, "state": ended}]
        embedded_objects.set_status(self.server, name, phase="Succeeded", containerStatuses=status)


@pytest.fixture
async def world(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(keeper, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(trial, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(node, "applied", merged)
    machine.install()
    machine.devices("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")
    machine.program()
    sizes = {"cpu": "64", "memory": "512Gi", "pods": "250", names.GPU_MEM: "32552", names.GPU_COUNT: "2"}
    async with ApiServer(bookmark_seconds=0.05) as server:
        embedded_objects.create(server, {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": NAME, "annotations": {names.NODE_GPUS: node_gpus.write("MiB", Pin.DIRECT, GPUS)}},
            "status": {"capacity": sizes, "allocatable": sizes},
        })  # fmt: skip
        made = World(server, machine)
        part = await http.serve_probes(
            "127.0.0.1", 0, lambda: "", lambda: made.part_is_not_ready, lambda: (b"", "text/plain")
        )
        made.node_part = f"http://127.0.0.1:{part.addresses[0][1]}/readyz"
        try:
            yield made
        finally:
            await part.cleanup()


def events(world: World) -> list[tuple[str, str]]:
    return [(reason, text) for _, reason, name, text in embedded_objects.events(world.server) if name == NAME]


async def test_everything_passes_and_nothing_stays_at_the_end(world: World) -> None:
    async with world.running() as validator:
        await world.run_pod()
        said = await world.says(driver="passed", toolkit="passed", plugin="passed", mps="skipped", workload="passed")
        assert world.there == {"driver-ready", "toolkit-ready", "plugin-ready", "cuda-ready"}
        assert said["workload"].why == "a pod with 1 aliyun.com/gpu-mem sees exactly GPU-1"
        assert (validator.dead(), validator.not_ready()) == ("", "")
        assert events(world) == []
        await until(world.server, lambda: not world.pods)
    assert world.there == set()
    assert names.VALIDATION not in world.annotations
    assert names.NODE_GPUS in world.annotations


async def test_a_driver_that_goes_and_comes_back_is_told_everywhere(world: World) -> None:
    async with world.running():
        await world.says(plugin="passed")
        world.machine.library.unlink()
        said = await world.says(driver="failed", toolkit="waiting", plugin="waiting", workload="waiting")
        assert said["driver"].why.startswith("no NVIDIA driver")
        await eventually(lambda: world.there == set())
        world.machine.install()
        await world.says(plugin="passed")
        await eventually(lambda: world.there >= {"driver-ready", "toolkit-ready", "plugin-ready"})
        await until(world.server, lambda: len(events(world)) == 2)
    (failed, why), (passed, again) = sorted(events(world))
    assert (failed, passed) == ("ValidationFailed", "ValidationPassed")
    assert why.startswith("driver: no NVIDIA driver: libnvidia-ml.so.1")
    assert again == "driver passes again: driver 550.54.14 of this machine, 2 GPUs"


async def test_a_node_part_that_is_not_ready_says_why_and_driver_and_toolkit_stay_ready(world: World) -> None:
    world.part_is_not_ready = 'config default: unknown key "flag": it is not known'
    async with world.running():
        said = await world.says(driver="passed", toolkit="passed", plugin="failed", workload="waiting")
        assert 'config default: unknown key "flag"' in said["plugin"].why
        assert world.there == {"driver-ready", "toolkit-ready"}
        assert world.pods == []


async def test_the_annotation_is_written_only_when_something_changes(world: World) -> None:
    world.part_is_not_ready = "starting"
    async with world.running() as validator:
        await world.says(plugin="failed")
        looks = validator.keeper._looked
        await eventually(lambda: validator.keeper._looked > looks + 0.3)
        assert validator.annotation.writes <= 2  # before and after the node's object was read


async def test_without_an_api_server_driver_and_toolkit_are_checked(world: World) -> None:
    world.server.url = "http://127.0.0.1:1"
    async with world.running():
        await eventually(lambda: world.there == {"driver-ready", "toolkit-ready"})


async def test_the_figures_have_our_names_and_on_their_own_port_nvidias(world: World) -> None:
    world.part_is_not_ready = "starting"
    world.machine.pci(("0x10de", "0x030200"), ("0x10de", "0x030200"))
    async with world.running(Listening("127.0.0.1", 0)) as validator:
        await world.says(driver="passed", plugin="failed")
        page = metrics.exposition(validator.metrics.registry)[0].decode()
        assert 'gpushare_validation{check="driver",state="passed"} 1.0' in page
        assert 'gpushare_validation{check="plugin",state="failed"} 1.0' in page
        assert validator.server is not None
        server = validator.server
        port = await eventually(lambda: server.port)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            page = await answer.text()
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    found = {key.removesuffix('{node="gpu-a"}'): float(value) for key, value in lines.items()}
    assert found.pop("gpu_operator_node_driver_validation_last_success_ts_seconds") > 1e9
    assert found == {
        "gpu_operator_node_driver_ready": 1,
        "gpu_operator_node_toolkit_ready": 1,
        "gpu_operator_node_plugin_ready": 0,
        "gpu_operator_node_cuda_ready": 0,
        "gpu_operator_node_driver_validation": 1,
        "gpu_operator_node_device_plugin_validation_last_success_ts_seconds": 0,
        "gpu_operator_node_device_plugin_devices_total": 32552,
        "gpu_operator_nvidia_pci_devices_total": 2,
    }


async def test_a_look_that_never_ends_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STUCK_SECONDS", -1.0)
    async with world.running() as validator:
        assert "s ago" in validator.dead()
