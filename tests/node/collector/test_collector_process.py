"""`gpushare collector` as people start it: the real command line, and a stand-in for NVIDIA's library.

It runs beside nothing here: the annotation of its node is written by the test.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names
from gpushare.core.facts.model import Gpu, Pin
from gpushare.devcluster.apiserver.server import ApiServer
from tests.node import world
from tests.support import embedded_objects, extender_process
from tests.support.nvml import build, state
from tests.support.wait import PATIENCE, eventually_asked, until

MIB = 1 << 20
PID, ID = 4711, "3f9a" * 16  # of a process on a GPU, and of its container
ANNOTATION = node_gpus.write("MiB", Pin.DIRECT, [Gpu(i, state.uuid(i), 16276, model="Tesla T4") for i in range(2)])
GPU_0 = f'node="gpu-a",gpu="0",UUID="{state.uuid(0)}"'
SOON = {
    "gpushare.node.usage.gpunode_writer.FIRST_WITHIN": 0.0,
    "gpushare.node.usage.gpunode_writer.SHORTEST": 0.1,
    "gpushare.gpu.absence.ABSENT_SECONDS": 0.1,
    "gpushare.node.part.START_SECONDS": 0.3,
}


class Machine:
    """A node: its API server, its GPUs as the library shows them, its processes."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.libraries, self.proc = folder / "lib", folder / "proc"
        self.libraries.mkdir()
        self.gpus = state.Mock(folder / "gpus")
        self.gpus.show(state.using(0, 16276), state.using(1, 16276))
        _process(self.proc / "1", "/init.scope")
        _process(self.proc / "self", "/system.slice")
        (self.proc / "self" / "status").write_text("Name:\tgpushare\nNSpid:\t4711\t1\n")
        (self.proc / "self" / "ns").mkdir()
        (self.proc / "self" / "ns" / "pid").symlink_to("pid:[4026532713]")

    def have_driver(self) -> None:
        """Found through the loader."""
        (self.libraries / build.LIBRARY).unlink(missing_ok=True)
        (self.libraries / build.LIBRARY).symlink_to(build.cached())

    def have_no_driver(self) -> None:
        (self.libraries / build.LIBRARY).unlink(missing_ok=True)
        (self.libraries / build.LIBRARY).touch()  # cannot be loaded, and hides a real one

    def publish(self, annotation: str | None = ANNOTATION) -> None:
        world.patch(self.server, {"metadata": {"annotations": {names.NODE_GPUS: annotation}}})

    def run_pod(self, mib: int, uses: int) -> None:
        """A pod that was given so much of the first GPU, and uses so much."""
        pod = world.bound(self.server, "web", mib, on=state.uuid(0))
        running = {"name": "c0", "containerID": f"containerd://{ID}", "state": {"running": {}}}
        embedded_objects.set_status(self.server, "web", phase="Running", containerStatuses=[running])
        _process(self.proc / str(PID), f"/kubepods/pod{pod['metadata']['uid']}/{ID}")
        self.gpus.show(state.using(0, 16276, state.process(PID, uses, 40)), state.using(1, 16276))

    def gpunode(self) -> dict[str, Any]:
        """Its status; empty: there is none."""
        entry = self.server.store.get("gpunodes.gpushare.io", world.NAME)
        return dict(entry.obj().get("status") or {}) if entry is not None else {}

    def sampled(self) -> str | None:
        """Whether the driver answered, as the GPUNode says; None: it says nothing."""
        found = [one["status"] for one in self.gpunode().get("conditions", ()) if one["type"] == "Sampled"]
        return found[0] if found else None

    @contextlib.asynccontextmanager
    async def running(self, *words: str, command: str = "collector") -> AsyncIterator["Running"]:
        port = extender_process.free_port()
        given = [
            *extender_process.command(SOON), command, "--kubeconfig",
            str(self.server.write_kubeconfig(self.folder / "kubeconfig")), "--node-name", world.NAME, "--port",
            str(port), "--metrics-listen=off", *words,
        ]  # fmt: skip
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.libraries), state.VARIABLE: str(self.gpus.path)}
        with (self.folder / "log").open("wb") as log:
            child = await asyncio.create_subprocess_exec(*given, env=environment, stderr=log)
        async with aiohttp.ClientSession() as session:
            try:
                yield Running(child, session, f"http://127.0.0.1:{port}", self.folder / "log")
            finally:
                if child.returncode is None:
                    child.kill()
                await child.wait()


class Running:
    def __init__(self, child: Process, session: aiohttp.ClientSession, url: str, log: Path) -> None:
        self.child, self._session, self._url, self.log = child, session, url, log

    async def get(self, path: str) -> tuple[int, str]:
        """(0, "") while it does not listen yet."""
        try:
            async with self._session.get(f"{self._url}{path}") as response:
                return response.status, await response.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until(self, path: str, text: str, *, code: int = 200, there: bool = True) -> None:
        async def is_so() -> bool:
            found, page = await self.get(path)
            return found == code and (text in page) == there

        await eventually_asked(is_so, f"{path}: {text}", every=0.02)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.child.wait()


def _process(folder: Path, cgroup: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup").write_text(f"0::{cgroup}\n")


@pytest.fixture
async def machine(server: ApiServer, tmp_path: Path) -> Machine:
    made = Machine(server, tmp_path)
    made.have_driver()
    return made


async def test_from_a_process_on_a_gpu_to_the_page_the_gpunode_and_the_event(machine: Machine) -> None:
    machine.publish()
    machine.run_pod(6000, uses=9000)
    words = ("--sample-seconds=0.1", "--overuse-grace=0.1", "--proc", str(machine.proc))
    async with machine.running(*words) as collector:
        await collector.until("/readyz", "ok")
        await collector.until("/metrics", f"gpushare_gpu_memory_granted_bytes{{{GPU_0}}} {6000 * MIB}\n")
        await collector.until("/metrics", f" {9000 * MIB}\n")
        assert (await collector.get("/healthz")) == (200, "ok\n")
        await until(machine.server, lambda: machine.gpunode().get("gpus", [{}])[0].get("overUsers"))
        await until(machine.server, lambda: "GPUOverUse" in [reason for reason, *_ in world.warnings(machine.server)])
        (container,) = machine.gpunode()["gpus"][0]["containers"]
        assert (container["pod"], container["grantedMiB"], container["usedMiB"]) == ("web", 6000, 9000)
        assert [gpu["healthy"] for gpu in machine.gpunode()["gpus"]] == [True, True]
        collector.child.send_signal(signal.SIGTERM)
        assert await collector.ended() == 0
    assert world.said(machine.server) is not None  # whose GPUs these are is not its business


async def test_an_annotation_that_goes_and_comes_back_is_waited_for(machine: Machine) -> None:
    waits = "node gpu-a has no usable annotation gpushare.io/gpus: waiting for gpushare node, which writes it"
    async with machine.running("--sample-seconds=0.1") as collector:
        await collector.until("/readyz", waits, code=503)
        assert (await collector.get("/healthz")) == (200, "ok\n")
        for _ in range(2):
            machine.publish()
            await collector.until("/readyz", "ok")
            await collector.until("/metrics", f"gpushare_gpu_healthy{{{GPU_0}}} 1\n")
            machine.publish(None)
            await collector.until("/readyz", waits, code=503)
            await collector.until("/metrics", "gpushare_gpu_", there=False)
        collector.child.send_signal(signal.SIGTERM)
        assert await collector.ended() == 0


async def test_while_the_driver_hangs_nothing_is_known_and_it_still_ends_in_order(machine: Machine) -> None:
    machine.publish()
    cards = (state.using(0, 16276), state.using(1, 16276))
    figure = f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{state.uuid(0)}"'
    async with machine.running("--sample-seconds=0.1") as collector:
        await until(machine.server, lambda: machine.sampled() == "True")
        await collector.until("/metrics", figure)
        machine.gpus.show(*cards, rules=("hang=nvmlDeviceGetTemperature",))
        await until(machine.server, lambda: machine.sampled() == "False")
        await collector.until("/metrics", figure, there=False)
        await collector.until("/metrics", f"gpushare_gpu_healthy{{{GPU_0}}} 1\n")  # as its annotation says
        assert "temperature" not in machine.gpunode()["gpus"][0]
        machine.gpus.show(*cards)
        await until(machine.server, lambda: machine.sampled() == "True")
        machine.gpus.show(*cards, rules=("hang=nvmlDeviceGetTemperature",))
        await until(machine.server, lambda: machine.sampled() == "False")
        collector.child.send_signal(signal.SIGTERM)
        assert await collector.ended() == 0


@pytest.mark.parametrize("command", ["collector", "node"])
async def test_where_there_is_no_driver_it_waits_for_one_if_it_is_told_to(machine: Machine, command: str) -> None:
    machine.have_no_driver()
    machine.publish()
    pin = ("--pin=direct", "--memory-unit=MiB") if command == "node" else ()
    async with machine.running(*pin, command=command) as without:
        assert await without.ended() == 3
        assert "libnvidia-ml.so.1 not found" in without.log.read_text()
    async with machine.running(*pin, "--fail-on-init-error=false", command=command) as patient:
        await patient.until("/readyz", "ok")
        await patient.until("/healthz", "ok")
        assert patient.log.read_text().count("no NVIDIA driver on this node") == 1
        machine.have_driver()
        await patient.until("/metrics", 'gpushare_watch_age_seconds{of="driver"}')
        await until(machine.server, lambda: machine.sampled() == "True")
        await patient.until("/readyz", "ok")


async def test_a_driver_that_is_there_and_does_not_work_is_an_error(machine: Machine) -> None:
    machine.gpus.path.unlink()
    async with machine.running("--fail-on-init-error=false") as collector:
        assert await collector.ended() == 3
        assert "the NVIDIA driver is not loaded" in collector.log.read_text()
