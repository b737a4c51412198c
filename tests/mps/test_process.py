"""The whole process: it ends in order, and after kill -9 the next one, or --restore, knows the true modes."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from gpushare.core.facts import names
from gpushare.devcluster import kubeconfig
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.gpu import absence
from gpushare.mps import leftovers
from tests.node import world
from tests.support import embedded_objects
from tests.support.mps import stand_in
from tests.support.mps.stand_in import StandIn
from tests.support.nvml import build, state
from tests.support.wait import eventually

EXCLUSIVE, DEFAULT = "3", "0"
ROOT = Path(__file__).parents[2]


class Node:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.pipe = folder, folder / "pipe"
        stand_in.install(folder / "bin")
        self.program = StandIn(self.pipe)
        self.gpus = state.Mock(folder / "gpus")
        self.gpus.show(state.card(0), state.card(1))
        self.kubeconfig = folder / "kubeconfig"
        kubeconfig.write(self.kubeconfig, url)
        self.log = folder / "log.txt"

    @contextlib.asynccontextmanager
    async def process(self, *words: str, driver: bool = True) -> AsyncIterator[asyncio.subprocess.Process]:
        """Killed at the end, if it still runs."""
        library = build.cached().parent if driver else self.folder
        environment = os.environ | {"LD_LIBRARY_PATH": str(library), state.VARIABLE: str(self.gpus.path)}
        with self.log.open("ab") as log:
            made = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.mps.process", str(self.kubeconfig), str(self.folder), *words,
                cwd=ROOT, env=environment, stderr=log,
            )  # fmt: skip
        try:
            yield made
        finally:
            with contextlib.suppress(ProcessLookupError):
                made.kill()
            await made.wait()

    @property
    def modes(self) -> list[str]:
        return sorted(path.read_text().strip() for path in self.folder.glob("gpus.mode.*"))

    async def is_ready(self) -> None:
        await eventually(lambda: (self.folder / "state" / ".ready").exists() or None, "the ready file", 30.0)

    def port(self) -> int:
        (line,) = re.findall(r'\{.*"msg": "listening".*\}', self.log.read_text())
        return int(json.loads(line)["port"])


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(bookmark_seconds=0.05) as server:
        embedded_objects.create(server, world.node())
        yield server


@pytest.fixture
def node(server: ApiServer) -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="gpushare-") as folder:
        made = Node(Path(folder), server.url)
        yield made
        assert made.program.wrong == []
        for pid in leftovers.find(made.pipe):
            os.kill(pid, signal.SIGKILL)


async def test_it_serves_answers_probes_and_ends_in_order_at_sigterm(node: Node, server: ApiServer) -> None:
    pod = embedded_objects.pod("client", 1)
    pod["spec"] |= {"nodeName": "gpu-a"}
    pod["spec"]["containers"][0]["resources"] = {"limits": {names.MPS_GPU: "1"}}
    embedded_objects.create(server, pod)
    embedded_objects.set_status(server, "client", phase="Running")
    async with node.process() as process:
        await node.is_ready()
        assert node.modes == [EXCLUSIVE] * 2
        async with aiohttp.ClientSession(f"http://127.0.0.1:{node.port()}") as session:
            for path in ("/healthz", "/readyz"):
                async with session.get(path) as answer:
                    assert (answer.status, await answer.text()) == (200, "ok\n")
            async with session.get("/metrics") as answer:
                page = await answer.text()
        assert "gpushare_mps_up 1.0" in page
        assert "gpushare_mps_losses_total 0.0" in page
        process.terminate()
        assert await process.wait() == 0
    assert node.modes == [DEFAULT] * 2
    assert not (node.folder / "state" / "modes.json").exists()
    assert leftovers.find(node.pipe) == []
    assert node.program.told == ["quit -t 8"]
    said = [(name, text) for _, reason, name, text in embedded_objects.events(server) if reason == "MpsDaemonLost"]
    assert (
        "client",
        "Its CUDA programs have lost the GPU and must be restarted: gpushare mps is being stopped",
    ) in said


async def test_after_kill_9_the_next_process_keeps_the_daemon_and_knows_the_modes(node: Node) -> None:
    async with node.process() as process:
        await node.is_ready()
        process.kill()
        await process.wait()
    (daemon,) = leftovers.find(node.pipe)
    assert node.modes == [EXCLUSIVE] * 2
    (node.folder / "state" / ".ready").unlink()
    async with node.process() as process:
        await node.is_ready()
        assert leftovers.find(node.pipe) == [daemon]
        process.terminate()
        assert await process.wait() == 0
    assert node.modes == [DEFAULT] * 2


async def test_on_a_node_without_a_driver_it_is_ready_and_does_nothing_if_that_is_no_error(node: Node) -> None:
    async with node.process("idle", driver=False) as process:
        await eventually(lambda: absence.NO_DRIVER in node.log.read_text() or None, "it says so", 30.0)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{node.port()}") as session:
            for path in ("/healthz", "/readyz"):
                async with session.get(path) as answer:
                    assert (answer.status, await answer.text()) == (200, "ok\n")
        process.terminate()
        assert await process.wait() == 0
    assert node.modes == []
    assert node.program.told == []


async def test_restore_puts_the_modes_back_and_ends(node: Node) -> None:
    async with node.process() as process:
        await node.is_ready()
        async with node.process("restore") as beside:
            assert await beside.wait() == 3, "not while a supervisor runs"
        process.kill()
        await process.wait()
    async with node.process("restore") as restoring:
        assert await restoring.wait() == 0
    assert node.modes == [DEFAULT] * 2
    assert "another gpushare mps runs on this node" in node.log.read_text()


async def test_a_process_without_rights_ends_with_code_3_and_the_status_says_why(node: Node) -> None:
    node.gpus.show(state.card(0), rules=("fail=nvmlDeviceSetComputeMode 4",))
    async with node.process() as process:
        assert await process.wait() == 3
    status = json.loads((node.folder / "state" / "status.json").read_bytes())
    assert status["state"] == "down"
    assert status["why"].startswith("this process may not set the compute mode of GPUs")


async def test_without_the_control_program_nothing_is_changed(node: Node) -> None:
    (node.folder / "bin" / stand_in.SOURCE.name).unlink()
    async with node.process() as process:
        assert await process.wait() == 3
    assert node.modes == []
    assert "error: nvidia-cuda-mps-control not found" in node.log.read_text()
