"""`gpushare dashboard` as a process, on an embedded cluster: from the link in the terminal to its pages and its end."""

import asyncio
import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.nodes import simulated_node
from tests.support import embedded_objects, extender_process, scripted_api
from tests.support.scripted_api import refuse
from tests.support.wait import PATIENCE

PAGES = (
    "api/node/a", "api/gpu/a/0?range=1h", "api/gpu/a/1?range=48h", "api/waiting", "api/why/default/waits",
    "api/history?range=6h", "api/health", "api/search?q=wai",
)  # fmt: skip
POD = """
{kind: Pod, apiVersion: v1, metadata: {name: more},
 spec: {containers: [{name: main, image: i, resources: {limits: {aliyun.com/gpu-mem: 2000}}}]}}
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    """One node with two GPUs, and a pod that is too large for it."""
    async with ApiServer() as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        embedded_objects.create(server, simulated_node("a", "10.0.0.11", [8000, 8000]))
        embedded_objects.create(server, embedded_objects.pod("waits", 9000))
        yield server


class Process:
    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child

    async def line(self) -> str:
        assert self.child.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self.child.stdout.readline()).decode()

    async def ended(self) -> tuple[int | None, str]:
        async with asyncio.timeout(PATIENCE):
            _, said = await self.child.communicate()
        return self.child.returncode, said.decode()


@contextlib.asynccontextmanager
async def dashboard(folder: Path, *words: str) -> AsyncIterator[Process]:
    child = await asyncio.create_subprocess_exec(
        *extender_process.command(), "dashboard", "--kubeconfig", str(folder / "kubeconfig"), *words,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Process(child)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def answered(http: aiohttp.ClientSession, url: str) -> Any:
    """As soon as the cluster is read."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with http.get(url) as response:
                if response.status != 503:
                    assert response.status == 200, await response.text()
                    return await response.json()
            await asyncio.sleep(0.05)


async def test_the_link_leads_to_every_page_and_ctrl_c_ends_it(server: ApiServer, tmp_path: Path) -> None:
    async with dashboard(tmp_path) as process:
        link = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+/)(login\?token=\S+)\n", await process.line())
        assert link is not None
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            async with http.get(link[1] + link[2], allow_redirects=False) as entered:
                assert entered.status == 303
            assert (await answered(http, f"{link[1]}api/me"))["cluster"] == "devcluster"
            whole = await answered(http, f"{link[1]}api/snapshot")
            assert (whole["nodes"]["name"], whole["gpus"]["total"]) == (["a"], [8000, 8000])
            for page in PAGES:
                await answered(http, link[1] + page)
            assert (await answered(http, f"{link[1]}api/health"))["notes"] == []  # everything could be read
            async with http.get(f"{link[1]}api/stream?from={whole['epoch']}.{whole['seq']}") as stream:
                await asyncio.wait_for(stream.content.readuntil(b"event: delta"), PATIENCE)
            body = {"yaml": POD, "replicas": 9, "policy": "", "namespace": "default"}
            headers = {"Origin": link[1].rstrip("/"), "X-Gpushare": "1"}
            async with http.post(f"{link[1]}api/whatif", json=body, headers=headers) as tried:
                (item,) = (await tried.json())["items"]
                assert (item["asked"], item["fit"]) == (9, 8)
            async with http.post(f"{link[1]}api/whatif", json={"yaml": "{"}, headers=headers) as bad:
                assert (bad.status, bool((await bad.json())["error"])) == (400, True)
        process.child.send_signal(signal.SIGINT)
        code, said = await process.ended()
        assert code == 130
        assert link[2].partition("=")[2] not in said


async def test_the_api_equals_what_the_commands_print(server: ApiServer, tmp_path: Path) -> None:
    async with dashboard(tmp_path) as process, aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        link = (await process.line()).split()[1]
        async with http.get(link, allow_redirects=False):
            base = link.partition("login")[0]
        page = await answered(http, f"{base}api/why/default/waits")
        child = await asyncio.create_subprocess_exec(
            *extender_process.command(), "why", "waits", "-o", "json", "--kubeconfig", str(tmp_path / "kubeconfig"),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await child.communicate()
        assert page["explanation"] == json.loads(said)


async def test_sigterm_ends_it_also_with_open_streams(server: ApiServer, tmp_path: Path) -> None:
    async with dashboard(tmp_path) as process, aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        link = (await process.line()).split()[1]
        async with http.get(link, allow_redirects=False):
            base = link.partition("login")[0]
        await answered(http, f"{base}api/snapshot")
        async with http.get(f"{base}api/stream") as stream:
            await stream.content.readuntil(b"event: reset")
            process.child.terminate()
            assert b"event: bye" in await asyncio.wait_for(stream.content.read(), PATIENCE)
        assert (await process.ended())[0] == 0


async def test_who_may_not_list_nodes_gets_one_clear_error(tmp_path: Path) -> None:
    async with scripted_api.serve() as api:
        (tmp_path / "kubeconfig").write_text(json.dumps({
            "clusters": [{"name": "c", "cluster": {"server": api.url}}], "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c",
        }))  # fmt: skip
        sentence = 'nodes is forbidden: User "ada" cannot list resource "nodes" in API group "" at the cluster scope'
        api.on("GET /api/v1/nodes", refuse(403, "Forbidden", sentence))
        async with dashboard(tmp_path) as process:
            code, said = await process.ended()
    assert code == 3
    assert said.startswith("error: not allowed: list nodes")
    assert "clusterrolebinding" in said
    assert len(said.splitlines()) == 3


async def test_a_port_in_use_is_said_in_one_sentence(server: ApiServer, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    async with dashboard(tmp_path, "--port", port) as process:
        code, said = await process.ended()
    assert code == 2
    assert said.startswith(f"error: port {port} on 127.0.0.1 is in use")
    assert "--port N" in said


async def test_in_a_cluster_it_is_https_with_a_certificate_of_its_own(server: ApiServer, tmp_path: Path) -> None:
    port = extender_process.free_port()
    async with dashboard(tmp_path, "--in-cluster", "--listen", "127.0.0.1", "--port", str(port)) as process:
        async with aiohttp.ClientSession() as http, asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    async with http.get(f"https://127.0.0.1:{port}/readyz", ssl=False) as ready:
                        if ready.status == 200:
                            break
                await asyncio.sleep(0.05)
            async with http.get(f"https://127.0.0.1:{port}/api/me", ssl=False) as nobody:
                assert nobody.status == 401
        process.child.terminate()
        code, said = await process.ended()
    assert code == 0
    assert all(json.loads(line) for line in said.splitlines())
