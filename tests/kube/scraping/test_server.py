"""Where Prometheus asks, and what it needs to be answered."""

import asyncio
import contextlib
import datetime
import select
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from gpushare.kube import client
from gpushare.kube.scraping import self_signed
from gpushare.kube.scraping.server import Listening, Server, is_loopback
from gpushare.obs.errors import UserError
from tests.support import scripted_api
from tests.support.scripted_api import answer
from tests.support.wait import eventually, eventually_asked

NOBODY = cast(client.Api, None)
PAGE = (b"up 1\n", "text/plain; version=0.0.4; charset=utf-8")


async def made(*hosts: str) -> tuple[bytes, bytes]:
    """In this process: starting another one takes long."""
    return self_signed.make(list(hosts), datetime.datetime.now(datetime.UTC))


async def never(_: float) -> None:
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def serving(
    listen: Listening,
    api: client.Api = NOBODY,
    sleep: Callable[[float], Awaitable[object]] = never,
    *,
    waits: bool = True,
) -> AsyncIterator[Server]:
    server = Server(listen, "gpu-a", api, lambda: PAGE, made=made, sleep=sleep)
    task = asyncio.create_task(server.run())
    try:
        if waits:
            await eventually(lambda: server.port is not None)
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def get(url: str, tls: ssl.SSLContext | bool = True, token: str = "") -> tuple[int, str, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url, ssl=tls, headers=headers) as response:
        return response.status, response.headers.get("Content-Type", ""), await response.text()


def everywhere() -> ssl.SSLContext:
    """As a Prometheus that is told to check no certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def test_on_loopback_everybody_may_ask() -> None:
    async with serving(Listening("127.0.0.1", 0)) as server:
        assert await get(f"http://127.0.0.1:{server.port}/metrics") == (200, PAGE[1], "up 1\n")


async def test_a_flood_of_connections_is_accepted_a_few_at_a_time() -> None:
    """What the component has to answer elsewhere must not wait for hundreds of handshakes."""
    async with serving(Listening("127.0.0.1", 0)) as server:
        flood = [socket.socket() for _ in range(40)]
        for one in flood:  # nobody accepts them meanwhile: that would be the loop that does this
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", server.port))
        assert len(select.select([], flood, [], 0)[1]) < 16
        for one in flood:
            one.close()


async def test_elsewhere_a_token_is_needed_and_the_way_is_encrypted() -> None:
    async with scripted_api.serve() as asked, client.connect(asked.access()) as api:
        user = {"authenticated": True, "user": {"username": "prometheus"}}
        asked.on("POST /apis/authentication.k8s.io/v1/tokenreviews", answer({"status": user}))
        asked.on("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", answer({"status": {"allowed": True}}))
        async with serving(Listening("0.0.0.0", 0), api) as server:
            url = f"https://127.0.0.1:{server.port}/metrics"
            assert (await get(url, everywhere()))[0] == 401
            assert await get(url, everywhere(), "good") == (200, PAGE[1], "up 1\n")
            with pytest.raises(aiohttp.ClientError):
                await get(url.replace("https", "http"))


@pytest.fixture
async def files(tmp_path: Path) -> Path:
    for name in ("server", "prometheus", "stranger"):
        certificate, key = await made("127.0.0.1")
        (tmp_path / f"{name}.crt").write_bytes(certificate)
        (tmp_path / f"{name}.key").write_bytes(key)
    return tmp_path


async def test_with_an_authority_only_its_certificates_are_let_in(files: Path) -> None:
    def showing(name: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(files / "server.crt"))
        if name is not None:
            context.load_cert_chain(files / f"{name}.crt", files / f"{name}.key")
        return context

    ours = (str(files / "server.crt"), str(files / "server.key"), str(files / "prometheus.crt"))
    async with serving(Listening("127.0.0.1", 0, *ours)) as server:
        url = f"https://127.0.0.1:{server.port}/metrics"
        assert (await get(url, showing("prometheus")))[0] == 200
        for wrong in (None, "stranger"):
            with pytest.raises((aiohttp.ClientError, OSError)):
                await get(url, showing(wrong))


@pytest.mark.parametrize("missing", ["server.crt", "server.key", "prometheus.crt"])
async def test_a_tls_file_that_cannot_be_used_is_told_at_the_start(files: Path, missing: str) -> None:
    (files / missing).write_text("no certificate")
    ours = (str(files / "server.crt"), str(files / "server.key"), str(files / "prometheus.crt"))
    with pytest.raises(UserError) as caught:
        Server(Listening("0.0.0.0", 0, *ours), "gpu-a", NOBODY, lambda: PAGE)
    assert caught.value.what.startswith("the TLS files cannot be used: ")
    assert missing in caught.value.what


async def test_a_port_in_use_is_tried_again_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    tries: asyncio.Queue[float] = asyncio.Queue()
    go_on = asyncio.Semaphore(0)

    async def sleep(seconds: float) -> None:
        tries.put_nowait(seconds)
        await go_on.acquire()

    with contextlib.ExitStack() as until_free:
        taken = until_free.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = taken.getsockname()[1]
        async with serving(Listening("127.0.0.1", port), sleep=sleep, waits=False) as server:
            await tries.get()
            go_on.release()
            await tries.get()
            assert server.port is None
            until_free.close()
            go_on.release()
            await eventually(lambda: server.port == port)
    assert caplog.text.count("the metrics page is not served yet") == 1


async def test_a_certificate_is_made_once_however_long_the_port_is_in_use() -> None:
    asked: list[tuple[str, ...]] = []
    tries = asyncio.Semaphore(0)

    async def counted(*hosts: str) -> tuple[bytes, bytes]:
        asked.append(hosts)
        return await made(*hosts)

    async def sleep(_: float) -> None:
        tries.release()
        await asyncio.sleep(0)

    with socket.create_server(("0.0.0.0", 0)) as taken:
        listen = Listening("0.0.0.0", taken.getsockname()[1])
        server = Server(listen, "gpu-a", NOBODY, lambda: PAGE, made=counted, sleep=sleep)
        task = asyncio.create_task(server.run())
        for _ in range(3):
            await tries.acquire()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert asked == [("gpu-a",)]


async def test_files_that_change_are_shown_from_then_on(files: Path) -> None:
    looked = asyncio.Semaphore(0)

    async def sleep(_: float) -> None:
        await looked.acquire()

    ours = (str(files / "server.crt"), str(files / "server.key"), str(files / "prometheus.crt"))
    async with serving(Listening("127.0.0.1", 0, *ours), sleep=sleep) as server:
        for end in ("crt", "key"):
            (files / f"server.{end}").write_bytes((files / f"stranger.{end}").read_bytes())
        looked.release()
        new = ssl.create_default_context(cafile=str(files / "stranger.crt"))
        new.load_cert_chain(files / "prometheus.crt", files / "prometheus.key")

        async def shown() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                return (await get(f"https://127.0.0.1:{server.port}/metrics", new))[0] == 200
            return False

        await eventually_asked(shown, every=0.01)


async def test_a_certificate_is_made_by_another_process_for_all_names_of_this_node() -> None:
    certificate, key = await self_signed.made("192.0.2.7", "gpu-a", "fd00::1")
    assert certificate.startswith(b"-----BEGIN CERTIFICATE")
    assert key.startswith(b"-----BEGIN PRIVATE KEY")


@pytest.mark.parametrize(
    ("host", "open_"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("", False), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("node-1", False)],
)  # fmt: skip
def test_only_loopback_is_open(host: str, open_: bool) -> None:
    assert is_loopback(host) is open_


async def test_a_request_that_cannot_be_read_is_not_quoted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Listening("127.0.0.1", 0)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer very-secret\x00\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
        await eventually(lambda: "cannot read a request" in caplog.text)
    assert "very-secret" not in caplog.text
