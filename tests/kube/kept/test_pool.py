"""Short writes over kept connections: the same answers and failures as by the ordinary client, and never sent twice."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from gpushare.kube import client, requests, resources
from gpushare.kube.auth import credentials, login, tls
from gpushare.kube.errors import ApiError, KubeError, Unreachable
from gpushare.kube.kept import pool
from gpushare.kube.requests import Request
from tests.support import scripted_api
from tests.support.scripted_api import Server, answer, cut, hang, refuse
from tests.support.wait import eventually

EVENTS = "POST /api/v1/namespaces/ml/events"
CREATED = answer({"kind": "Status", "status": "Success"}, 201)
CERTS = scripted_api.CERTS


def write(text: str = "x") -> Request:
    return requests.create(resources.EVENTS, "ml", {"message": text})


@contextlib.asynccontextmanager
async def kept(
    server: Server, access: login.Access | None = None, *, timeout: float = 5.0, ready: bool = True
) -> AsyncIterator[client.Api]:
    """With one kept connection, which is open already."""
    async with client.connect(access or server.access(), timeout=timeout, kept=1) as api:
        if ready:
            server.on(EVENTS, CREATED)
            await api.send(write("first"))
            await eventually(lambda: api._kept._connections, "a kept connection")
            server.asked.clear()
        yield api


async def test_a_write_says_the_same_over_both_ways() -> None:
    async with scripted_api.serve() as server, kept(server) as api, client.connect(server.access()) as ordinary:
        assert await api.send(write()) == await ordinary.send(write())
        ours, theirs = server.asked
        assert (ours.method, ours.path, ours.body) == (theirs.method, theirs.path, theirs.body)
        assert ours.headers == theirs.headers
        assert api._kept._connections[0].is_free


async def test_writes_use_one_connection_and_ordinary_requests_another() -> None:
    seen: set[object] = set()

    async def created(request: web.Request) -> web.StreamResponse:
        seen.add(request.transport.get_extra_info("peername") if request.transport else None)
        return await CREATED(request)

    async with scripted_api.serve() as server, kept(server) as api:
        server.on(EVENTS, created)
        for number in range(20):
            await api.send(write(str(number)))
        assert len(seen) == 1
        assert [asked.body["message"] for asked in server.asked] == [str(number) for number in range(20)]


async def test_while_it_is_in_use_others_wait_for_it() -> None:
    async with scripted_api.serve() as server, kept(server) as api:
        await asyncio.gather(*(api.send(write(str(number))) for number in range(10)))
        assert sorted(asked.body["message"] for asked in server.asked) == [str(number) for number in range(10)]
        assert len(api._kept._connections) == 1
        assert len({asked.peer for asked in server.asked}) == 1


async def test_before_the_first_one_is_open_writes_wait_for_it_too() -> None:
    async with scripted_api.serve() as server, kept(server, ready=False) as api:
        server.on(EVENTS, CREATED)
        await asyncio.gather(*(api.send(write(str(number))) for number in range(10)))
        assert (len(server.asked), len({asked.peer for asked in server.asked})) == (10, 1)


async def test_who_has_waited_long_for_one_takes_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "WAIT_SECONDS", 0.05)
    async with scripted_api.serve() as server, kept(server) as api:
        server.on(EVENTS, hang, CREATED)
        hanging = asyncio.create_task(api.send(write("hangs")))
        await eventually(lambda: server.asked)
        await api.send(write("goes"))
        assert [asked.body["message"] for asked in server.asked] == ["hangs", "goes"]
        assert len({asked.peer for asked in server.asked}) == 2
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)


async def test_who_stops_waiting_for_one_keeps_it_from_nobody() -> None:
    release = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await release.wait()
        return await CREATED(request)

    async with scripted_api.serve() as server, kept(server) as api:
        server.on(EVENTS, slow, CREATED)
        writing = [asyncio.create_task(api.send(write(name))) for name in ("slow", "gives up", "waits")]
        await eventually(lambda: server.asked)
        await asyncio.sleep(0)
        writing[1].cancel()
        release.set()
        await asyncio.gather(*writing, return_exceptions=True)
        assert [asked.body["message"] for asked in server.asked] == ["slow", "waits"]
        assert len({asked.peer for asked in server.asked}) == 1


@pytest.mark.parametrize("code", [400, 403, 404, 409, 422, 429, 500, 503, 504, 302])
async def test_a_refusal_is_the_same_over_both_ways(code: int) -> None:
    async with scripted_api.serve() as server, kept(server) as api, client.connect(server.access()) as ordinary:
        server.on(EVENTS, refuse(code, "Because", "x" * 5000, {"Retry-After": "7"}))
        failures = []
        for way in (api, ordinary):
            with pytest.raises(ApiError) as failure:
                await way.send(write())
            failures.append(failure.value.args)
        assert failures[0] == failures[1]
        assert failures[0][0] == code


async def test_a_long_answer_in_chunks_is_read() -> None:
    async def chunked(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=201)
        response.enable_chunked_encoding()
        await response.prepare(request)
        for _ in range(10):
            await response.write(b" " * 1000)
            await asyncio.sleep(0)
        await response.write(b"{}")
        return response

    async with scripted_api.serve() as server, kept(server) as api:
        server.on(EVENTS, chunked)
        for _ in range(3):
            assert await api.send(write()) == b" " * 10_000 + b"{}"
        assert api._kept._connections[0].is_free


async def test_a_write_whose_connection_is_cut_may_have_been_carried_out_and_is_not_sent_again() -> None:
    async with scripted_api.serve() as server, kept(server) as api:
        server.on(EVENTS, cut)
        with pytest.raises(Unreachable) as failure:
            await api.send(write())
        assert (failure.value.message, failure.value.sent) == ("the connection was lost", True)
        assert len(server.asked) == 1
        server.on(EVENTS, CREATED)
        await api.send(write())
        assert len(server.asked) == 2


async def test_a_write_without_an_answer_ends_in_time_and_may_have_been_carried_out() -> None:
    async with scripted_api.serve() as server, kept(server, timeout=0.3) as api:
        server.on(EVENTS, hang)
        with pytest.raises(Unreachable) as failure:
            await api.send(write())
        assert (failure.value.message, failure.value.sent) == ("no answer within 0.3 s", True)
        assert len(server.asked) == 1
        assert not api._kept._connections[0].is_open


async def test_a_late_answer_is_never_taken_for_that_to_the_next_write() -> None:
    release = asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        await release.wait()
        return await refuse(409, "TooLate")(request)

    async with scripted_api.serve() as server, kept(server) as api:
        server.on(EVENTS, late, CREATED)
        writing = asyncio.create_task(api.send(write("given up")))
        await eventually(lambda: server.asked)
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
        release.set()
        for _ in range(3):
            assert json.loads(await api.send(write()))["status"] == "Success"


async def test_a_connection_that_was_closed_meanwhile_is_not_written_to() -> None:
    async with scripted_api.serve() as server, kept(server) as api:
        closing = api._kept._connections[0]
        assert closing._transport is not None
        closing._transport.abort()
        await asyncio.sleep(0)
        await api.send(write())
        assert len(server.asked) == 1
        await eventually(lambda: api._kept._connections and api._kept._connections[0] is not closing, "a new one")


async def test_a_connection_that_was_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.05)
    async with scripted_api.serve() as server, kept(server) as api:
        idle = api._kept._connections[0]
        await asyncio.sleep(0.1)
        await api.send(write())
        assert not idle.is_open
        assert len(server.asked) == 1


class Renewed(credentials.Credential):
    def __init__(self) -> None:
        self.refreshed = 0

    async def current(self) -> credentials.Secret:
        return credentials.Secret(f"token-{self.refreshed}")

    def refresh(self) -> None:
        self.refreshed += 1


async def test_credentials_that_are_not_accepted_are_renewed() -> None:
    async def only_new(request: web.Request) -> web.StreamResponse:
        allowed = request.headers["Authorization"] == "Bearer token-1"
        return await (CREATED if allowed else refuse(401, "Unauthorized"))(request)

    credential = Renewed()
    async with scripted_api.serve() as server:
        access = login.Access(server.url, context="test", source="~/.kube/config", credential=credential)
        async with kept(server, access) as api:
            server.on(EVENTS, only_new)
            for _ in range(3):
                await api.send(write())
            assert credential.refreshed == 1
            assert [asked.headers["Authorization"] for asked in server.asked][-2:] == ["Bearer token-1"] * 2


async def test_a_token_that_cannot_be_a_header_is_left_to_the_ordinary_client() -> None:
    async with scripted_api.serve() as server, kept(server) as api:
        api.access.credential = credentials.Fixed("a\r\nX-Forged: b")
        with pytest.raises((KubeError, ValueError)):
            await api.send(write())
        assert server.asked == []


async def test_with_tls_and_a_client_certificate() -> None:
    pair = tls.Pair((CERTS / "client.crt").read_bytes(), (CERTS / "client.key").read_bytes())
    async with scripted_api.serve(tls=True, client_certificates=True) as server:
        ca = (CERTS / "ca.crt").read_bytes()
        access = login.Access(server.url, ca=ca, read_pair=lambda: pair)
        async with kept(server, access) as api:
            first = api._kept._connections[0]
            await api.send(write())
            assert first.is_free
            access._use(pair)  # a new certificate: the old connection is not used again
            await api.send(write())
            assert not first.is_open
            assert len(server.asked) == 2


async def test_a_certificate_that_is_not_trusted_fails_as_ever() -> None:
    async with scripted_api.serve(tls=True) as server, kept(server, login.Access(server.url), ready=False) as api:
        for _ in range(3):
            with pytest.raises(Unreachable, match="its certificate is not trusted") as failure:
                await api.send(write())
            assert not failure.value.sent
            await asyncio.sleep(0.02)
        assert api._kept._connections == []


async def test_nobody_there_fails_as_ever(unused_tcp_port: int) -> None:
    async with client.connect(login.Access(f"http://127.0.0.1:{unused_tcp_port}"), kept=2) as api:
        for _ in range(3):
            with pytest.raises(Unreachable, match="connection refused") as failure:
                await api.send(write())
            assert not failure.value.sent


async def test_where_there_is_a_proxy_no_connection_is_kept() -> None:
    async with scripted_api.serve() as server:
        access = login.Access("http://cluster.test", proxy=server.url)
        async with client.connect(access, kept=2) as api:
            for _ in range(3):
                with contextlib.suppress(KubeError):
                    await api.send(write())
                await asyncio.sleep(0.01)
            assert api._kept._connections == []


async def test_what_is_no_api_server_is_asked_in_the_ordinary_way_from_then_on() -> None:
    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(b"HTTP/1.0 201 Created\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(old, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with client.connect(login.Access(url), kept=1) as api:
            with pytest.raises(Unreachable) as failure:
                await api.send(write())
            assert failure.value.sent
            for _ in range(3):
                assert await api.send(write()) == b"{}"
