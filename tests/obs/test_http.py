"""A component says over HTTP whether it works, and in three lines why it cannot listen."""

import os
import socket
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge

from gpushare.obs import http, metrics
from gpushare.obs.errors import UserError


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with session.get(url) as response:
        return response.status, await response.text()


async def cannot_listen(host: str, *ports: int, other_port: str = http.OTHER_PORT) -> UserError:
    with pytest.raises(UserError) as caught:
        await http.listen(web.AppRunner(web.Application()), host, ports, other_port=other_port)
    return caught.value


async def test_probes_answer_ok_or_the_problem(session: aiohttp.ClientSession) -> None:
    registry, problems = CollectorRegistry(), {"dead": "", "not ready": "waiting for pods"}
    Gauge("gpus", "GPUs.", registry=registry).set(8)
    runner = await http.serve_probes(
        "127.0.0.1", 0, lambda: problems["dead"], lambda: problems["not ready"], lambda: metrics.exposition(registry)
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        assert await get(session, f"{url}/healthz") == (200, "ok\n")
        assert await get(session, f"{url}/readyz") == (503, "waiting for pods\n")
        assert "gpus 8.0" in (await get(session, f"{url}/metrics"))[1]
    finally:
        await runner.cleanup()


async def test_the_second_of_two_ports_is_named_with_the_process_that_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = await cannot_listen("127.0.0.1", 0, port, other_port="--port N or M")
    assert error.what == f"port {port} on 127.0.0.1 is in use"
    assert error.why.startswith(f"by process {os.getpid()} (") or sys.platform != "linux"
    assert error.way == "stop that one, or --port N or M"


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid", "a" * 64 + ".invalid"])
async def test_an_address_that_is_not_ours_is_said_without_a_trace(host: str) -> None:
    error = await cannot_listen(host, 12345)
    assert error.what == f"cannot listen on {host}, port 12345"
    assert error.why
    assert error.way == "--listen 127.0.0.1, or --port N"


def test_tls_needs_all_three_files() -> None:
    assert http.certificates(None, None, None) is None
    with pytest.raises(UserError) as caught:
        http.certificates("cert.pem", None, "ca.pem")
    assert caught.value.what == "TLS needs three files"
