"""The extender's port for Prometheus: the same page as on its own ports, and never in the way of schedulers."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.kube.scraping.server import Listening, Server
from tests.support import embedded_objects, extender_in_process
from tests.support.extender_in_process import ExtenderInProcess
from tests.support.wait import eventually

CERTS = Path(__file__).parents[1] / "kube" / "certs"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """One node, one GPU."""
    async with ApiServer() as server:
        embedded_objects.create(server, embedded_objects.node("a", 8000))
        yield server


async def get(extender: ExtenderInProcess, scheme: str, path: str = "/metrics") -> tuple[int, str]:
    scraped = extender.extender.scraped
    assert scraped is not None
    await eventually(lambda: scraped.port is not None, "the port for Prometheus")
    url = f"{scheme}://127.0.0.1:{scraped.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
        return response.status, await response.text()


async def answers(server: ApiServer, extender: ExtenderInProcess) -> bool:
    """Schedulers are answered."""
    pod = embedded_objects.create(server, embedded_objects.pod("p", 1000))
    return bool((await extender.filter(pod, "a"))["NodeNames"] == ["a"])


async def test_prometheus_reads_the_same_page_there_and_nothing_else(server: ApiServer) -> None:
    async with extender_in_process.running(server, metrics=Listening("127.0.0.1", 0)) as extender:
        status, page = await get(extender, "http")
        assert status == 200
        own = (await extender.get("/metrics"))[1]
        assert "gpushare_watch_age_seconds" in page
        assert [line for line in page.splitlines() if line.startswith("# TYPE")] == [
            line for line in own.splitlines() if line.startswith("# TYPE")
        ]
        assert (await get(extender, "http", "/gpushare-scheduler/inspect"))[0] == 404


async def test_where_others_can_ask_a_token_is_needed(server: ApiServer) -> None:
    files = str(CERTS / "server.crt"), str(CERTS / "server.key")
    async with extender_in_process.running(server, metrics=Listening("0.0.0.0", 0, *files)) as extender:
        assert await get(extender, "https") == (
            401,
            "these metrics need a bearer token: Authorization: Bearer TOKEN\n",
        )


async def test_a_port_in_use_ends_nothing(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = Listening("127.0.0.1", taken.getsockname()[1])
        async with extender_in_process.running(server, metrics=listen) as extender:
            await eventually(lambda: "the metrics page is not served yet" in caplog.text)
            assert await answers(server, extender)


async def test_a_fault_of_ours_there_ends_nothing(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_: Server) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Server, "_serve", fails)
    async with extender_in_process.running(server, metrics=Listening("127.0.0.1", 0)) as extender:
        await eventually(lambda: "a bug in gpushare" in caplog.text)
        assert await answers(server, extender)
