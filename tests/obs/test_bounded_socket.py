"""However many connections are opened, only so many stay open, and who comes last is served."""

import asyncio

from aiohttp import web

from gpushare.obs import http

MOST = 8


async def test_whoever_opens_connections_and_asks_nothing_keeps_nobody_out() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="served")

    app = web.Application()
    app.add_routes([web.get("/", answer)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await http.listen(runner, "127.0.0.1", [0], most=MOST)
    try:
        silent = [await asyncio.open_connection(*runner.addresses[0]) for _ in range(3 * MOST)]
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for dropped, _ in silent[: -MOST + 1]:
            assert await dropped.read() == b""
        assert not any(kept.at_eof() for kept, _ in silent[-MOST + 1 :])
        for _, other in [*silent, (reader, writer)]:
            other.close()
    finally:
        await runner.cleanup()


async def test_connections_that_were_closed_do_not_count() -> None:
    runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
    await http.listen(runner, "127.0.0.1", [0], most=2)
    try:
        reader, kept = await asyncio.open_connection(*runner.addresses[0])
        for _ in range(5):
            other, writer = await asyncio.open_connection(*runner.addresses[0])
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            await other.read()
            writer.close()
        assert not reader.at_eof()
        kept.close()
    finally:
        await runner.cleanup()


async def test_a_connection_that_is_spared_outlives_any_number_of_new_ones() -> None:
    spared: set[int] = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        spared.add(request.transport.get_extra_info("socket").fileno())
        return web.Response(text="served")

    app = web.Application()
    app.add_routes([web.get("/", answer)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await http.listen(runner, "127.0.0.1", [0], most=MOST, spared=spared)
    try:
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"served")
        silent = [await asyncio.open_connection(*runner.addresses[0]) for _ in range(3 * MOST)]
        assert await silent[0][0].read() == b""
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for _, other in [*silent, (reader, writer)]:
            other.close()
    finally:
        await runner.cleanup()
