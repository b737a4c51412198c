"""One stream for each tab: nothing is missed, nothing comes twice, and nobody can keep others from theirs."""

import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gpushare.dashboard.server import serving, streams
from tests.dashboard.server import world as worlds
from tests.dashboard.server.world import World, frames


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with worlds.local() as made:
        await made.login()
        yield made


async def opened(world: World, path: str = "api/stream?from=e.0", **headers: str) -> aiohttp.ClientResponse:
    return await world.http.get(f"{world.base}/{path}", headers=headers)


async def until(world: World, count: int) -> None:
    """So many streams are open for the server, which looks at them each second."""
    async with asyncio.timeout(10):
        while world.streams is None or world.streams.count() != count:
            await world.pass_(0.0)


async def test_frames_come_as_they_are_made_to_everybody(world: World) -> None:
    tabs = [await opened(world) for _ in range(3)]
    assert tabs[0].headers["X-Accel-Buffering"] == "no"
    assert tabs[0].content_type == "text/event-stream"
    await frames_of_start(tabs)
    world.ticks.send("one")
    world.ticks.send("two")
    for tab in tabs:
        assert await frames(tab, 2) == ["id: e.1\nevent: delta\ndata: one", "id: e.2\nevent: delta\ndata: two"]


async def frames_of_start(tabs: list[aiohttp.ClientResponse]) -> None:
    for tab in tabs:
        assert await tab.content.readuntil(b"\n\n") == b": \n\n"
        assert await tab.content.readuntil(b"\n\n") == b": \n\n"  # nothing was missed


async def test_who_comes_back_gets_what_came_meanwhile_and_nothing_twice(world: World) -> None:
    for data in ("one", "two", "three"):
        world.ticks.send(data)
    by_query = await opened(world, "api/stream?from=e.1")
    by_header = await opened(world, "api/stream?from=e.0", **{"Last-Event-ID": "e.2"})
    world.ticks.send("four")
    assert [frame.rpartition(" ")[2] for frame in await frames(by_query, 3)] == ["two", "three", "four"]
    assert [frame.rpartition(" ")[2] for frame in await frames(by_header, 2)] == ["three", "four"]


@pytest.mark.parametrize("start", ["other.1", "e.99", "e.", "e", "", "e.-1", "e.1e3", "e.999999999999999999999", "e.١"])
async def test_who_was_away_for_too_long_reads_the_snapshot_again(world: World, start: str) -> None:
    tab = await opened(world, f"api/stream?from={start}")
    assert await frames(tab, 1) == ["event: reset\ndata:"]


async def test_a_quiet_stream_says_something_every_fifteen_seconds(world: World) -> None:
    tab = await opened(world)
    await frames_of_start([tab])
    for _ in range(14):
        await world.pass_(1.0)
    assert not tab.content._buffer
    await world.pass_(1.0)
    assert await tab.content.readuntil(b"\n\n") == b": \n\n"


async def test_a_session_has_32_streams_and_the_next_one_is_refused_politely(world: World) -> None:
    tabs = [await opened(world) for _ in range(streams.MOST_OF_SESSION)]
    refused = await world.get("api/stream")
    assert (refused.status, refused.headers["Retry-After"]) == (503, "30")
    assert "32" in (await refused.json())["why"]
    tabs[0].close()
    await until(world, streams.MOST_OF_SESSION - 1)
    assert (await opened(world)).status == 200


async def test_there_are_only_so_many_streams_in_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST", 3)
    tabs = [await opened(world) for _ in range(3)]
    for _ in range(50):
        assert (await world.get("api/stream")).status == 503
    assert (await world.get("api/me")).status == 200
    world.ticks.send("one")
    for tab in tabs:
        assert (await frames(tab, 1))[0].endswith("one")


async def test_whoever_connects_again_and_again_hurts_no_stream(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CONNECTIONS", 8)  # as if there were many more below
    async with worlds.local() as small:
        await small.login()
        tab = await opened(small)
        others = [await asyncio.open_connection("127.0.0.1", small.port) for _ in range(100)]
        small.ticks.send("one")
        assert (await frames(tab, 1))[0].endswith("one")
        assert (await small.get("api/me")).status == 200
        for _, writer in others:
            writer.close()


async def test_who_does_not_read_is_dropped_and_the_others_go_on(world: World) -> None:
    tab = await opened(world)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", world.port))
    (cookie,) = world.http.cookie_jar
    slow.sendall(
        f"GET /api/stream?from=e.0 HTTP/1.1\r\nHost: 127.0.0.1:{world.port}\r\n"
        f"Cookie: {cookie.key}={cookie.value}\r\n\r\n".encode()
    )
    await until(world, 2)
    big, sent = "x" * 100_000, 0
    while world.streams is not None and world.streams.count() == 2:
        world.ticks.send(big)
        sent += 1
        assert sent < 200
        assert (await frames(tab, 1))[0].endswith("x")
    world.ticks.send("last")
    assert (await frames(tab, 1))[0].endswith("last")
    slow.close()


async def test_a_session_that_ends_ends_its_streams_with_a_sentence(world: World) -> None:
    tab = await opened(world)
    await world.post("logout")
    for _ in range(6):
        await world.pass_(1.0)
    assert await frames(tab, 1) == ["event: bye\ndata: you have logged out"]
    assert await tab.content.read() == b""


async def test_a_stream_that_is_open_keeps_its_session(world: World) -> None:
    tab = await opened(world)
    for _ in range(3):
        await world.pass_(6 * 3600.0)
    assert (await world.get("api/me")).status == 200
    assert not tab.content.at_eof()


async def test_streams_that_are_closed_are_forgotten(world: World) -> None:
    for _ in range(5):
        tab = await opened(world)
        tab.close()
    await until(world, 0)
    assert world.streams is not None
    assert world.streams.filenos == set()


async def test_when_the_dashboard_ends_every_stream_is_told(world: World) -> None:
    tab = await opened(world)
    assert world.streams is not None
    await world.streams.close()
    assert (await frames(tab, 1))[0].startswith("event: bye")


async def test_an_old_proxy_that_cannot_stream_is_told(world: World) -> None:
    (cookie,) = world.http.cookie_jar
    head = f"GET /api/stream HTTP/1.0\r\nHost: 127.0.0.1:{world.port}\r\n"
    said = await world.raw(f"{head}Cookie: {cookie.key}={cookie.value}\r\n\r\n".encode())
    assert b"426" in said.partition(b"\r\n")[0]
