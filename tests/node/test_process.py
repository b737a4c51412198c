"""The process: what it answers over HTTP, how it ends, and what it says first."""

import asyncio
import contextlib
import json
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.obs import http
from gpushare.obs.errors import UserError
from tests.node import world
from tests.node.world import capacity, said
from tests.support.wait import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
FULL = ("27454", "2")


@contextlib.asynccontextmanager
async def process(server: ApiServer, folder: Path) -> AsyncIterator[tuple[Process, str]]:
    """Running, and where it listens."""
    words = ["-m", "tests.node.process", str(server.write_kubeconfig(folder / "kubeconfig")), *map(str, world.SIZES)]
    child = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    try:
        assert child.stderr is not None
        async with asyncio.timeout(PATIENCE):
            first = json.loads(await child.stderr.readline())
        assert first["msg"] == "listening"
        yield child, f"http://127.0.0.1:{first['port']}"
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def ended(child: Process) -> int:
    async with asyncio.timeout(PATIENCE):
        await child.communicate()
    assert child.returncode is not None
    return child.returncode


async def test_sigterm_says_draining_first_and_then_ends_well(server: ApiServer, tmp_path: Path) -> None:
    async with process(server, tmp_path) as (child, _):
        await until(server, lambda: capacity(server) == FULL)
        child.send_signal(signal.SIGTERM)
        assert await ended(child) == 0
    found = said(server)
    assert found is not None
    assert found["state"] == "draining"
    assert capacity(server) == FULL  # what runs is counted on
    async with process(server, tmp_path):
        await until(server, lambda: (said(server) or {})["state"] == "ready")


async def test_it_ends_in_time_when_nobody_can_be_told(server: ApiServer, tmp_path: Path) -> None:
    async with process(server, tmp_path) as (child, _):
        await until(server, lambda: capacity(server) == FULL)
        server.token = "changed"  # whatever it asks from now on is refused
        child.send_signal(signal.SIGTERM)
        assert await ended(child) == 0
    assert (said(server) or {})["state"] == "ready"


async def test_sigterm_ends_it_while_it_still_waits(quick: None, tmp_path: Path) -> None:
    async with (
        ApiServer() as empty,  # no node at all
        process(empty, tmp_path) as (child, url),
        aiohttp.ClientSession() as session,
    ):
        assert await _get(session, f"{url}/healthz") == (200, "ok\n")
        code, text = await _get(session, f"{url}/readyz")
        assert (code, text.startswith("starting: waiting for")) == (503, True)
        child.send_signal(signal.SIGTERM)
        assert await ended(child) == 0


async def test_kubelet_and_prometheus_are_answered(server: ApiServer, tmp_path: Path) -> None:
    async with process(server, tmp_path) as (_, url), aiohttp.ClientSession() as session:
        await until(server, lambda: capacity(server) == FULL)
        assert await _get(session, f"{url}/healthz") == (200, "ok\n")
        async with asyncio.timeout(PATIENCE):
            while await _get(session, f"{url}/readyz") != (200, "ok\n"):  # our own watch is behind the store
                pass
            while "gpushare_gpu_healthy" not in (page := (await _get(session, f"{url}/metrics"))[1]):
                pass  # the driver is asked once more before
        assert f'gpushare_gpu_memory_total_bytes{{node="{world.NAME}",gpu="1",UUID="GPU-1"}} {11178 << 20}' in page
        assert f'gpushare_gpu_healthy{{node="{world.NAME}",gpu="0",UUID="GPU-0"}} 1' in page
        assert 'gpushare_node_writes_total{of="node"} 2.0' in page
        assert 'gpushare_node_audit{found="GPUOvercommitted"} 0.0' in page
        assert 'gpushare_watch_age_seconds{of="driver"}' in page


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as caught:
            await http.serve_probes("127.0.0.1", port, lambda: "", lambda: "", lambda: (b"", ""))
    assert caught.value.what == f"port {port} on 127.0.0.1 is in use"
    assert "--port" in caught.value.way


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with session.get(url) as response:
        return response.status, await response.text()
