"""How long a connection lives, who is not read, and how it ends: plain requests over real sockets, and without any."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from gpushare.extender import server
from gpushare.extender.serving import front
from gpushare.extender.serving.front import Front
from gpushare.extender.serving.listening import Listening
from tests.extender.serving.both import Both, Wire
from tests.support import wait

CERTS = Path(__file__).parents[2] / "kube/certs"
BIND = json.dumps({"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"}).encode()


def plain(verb: str, body: bytes) -> bytes:
    head = f"POST /gpushare-scheduler/{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def no_ordinary() -> asyncio.Protocol:
    raise AssertionError("this request is plain")


@contextlib.asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[Listening]:
    listening = await server.serve(Both().handlers, "127.0.0.1", [0], tls)
    try:
        yield listening
    finally:
        await listening.cleanup()


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(wait.PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]))


async def test_with_tls_a_connection_is_plain_and_then_aiohttps() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTS / "server.crt", CERTS / "server.key")
    trusting = ssl.create_default_context(cafile=CERTS / "ca.crt")
    trusting.check_hostname = False
    async with listening(context) as ours:
        reader, writer = await asyncio.open_connection("127.0.0.1", ours.addresses[0][1], ssl=trusting)
        for _ in range(3):
            writer.write(plain("filter", b"x" * 100_000))
            assert await answer(reader) == b'{"asked":100000,"sum":12000000}'
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await answer(reader) == b"ok\n"
        writer.write(plain("bind", BIND))
        assert json.loads(await answer(reader)) == {"Error": "p"}
        writer.close()


async def test_an_idle_connection_is_closed_after_its_time_and_not_before() -> None:
    ours = Front(Both().handlers.plain(), no_ordinary, keep_alive=front.TICK * 10)
    wire = Wire(ours())
    for _ in range(3):
        for _ in range(10):
            ours.tick()
        assert not wire.closed
        wire.protocol.data_received(plain("filter", b"{}"))
    for _ in range(11):
        ours.tick()
    assert wire.closed


async def test_who_waits_for_a_binding_is_not_idle() -> None:
    ours = Front(Both().handlers.plain(), no_ordinary, keep_alive=front.TICK)
    wire = Wire(ours())
    wire.protocol.data_received(plain("bind", BIND))
    for _ in range(10):
        ours.tick()
    await wait.eventually(lambda: wire.written != b"", "the answer")
    assert wire.written.endswith(b'{"Error":"p"}')
    assert not wire.closed


async def test_who_does_not_read_answers_is_not_read_and_closed_in_the_end() -> None:
    ours = Front(Both().handlers.plain(), no_ordinary, keep_alive=front.TICK)
    wire = Wire(ours())
    wire.protocol.data_received(plain("filter", b"{}"))
    wire.protocol.pause_writing()
    assert wire.paused
    wire.protocol.resume_writing()
    assert not wire.paused
    wire.protocol.pause_writing()
    for _ in range(3):
        ours.tick()
    assert wire.closed


async def test_who_reads_again_while_a_binding_is_written_is_read_again_too() -> None:
    """With TLS a request may still come after reading was paused."""
    wire = Wire(Front(Both().handlers.plain(), no_ordinary, keep_alive=front.TICK)())
    wire.protocol.data_received(plain("filter", b"{}"))
    wire.protocol.pause_writing()
    wire.protocol.data_received(plain("bind", BIND.replace(b'"a"', b'"' + b"a" * 200 + b'"')))
    wire.protocol.resume_writing()
    assert not wire.paused


async def test_at_the_end_a_binding_is_answered_and_idle_connections_are_closed() -> None:
    async with listening() as ours:
        port = ours.addresses[0][1]
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(plain("filter", b"{}"))
        await answer(reader)
        writer.write(plain("bind", BIND.replace(b'"a"', b'"' + b"a" * 200 + b'"')))
        await asyncio.sleep(0.001)
    assert await idle.read() == b""
    assert (await reader.read()).endswith(b'{"Error":"p"}')
    writer.close()
    idle_writer.close()


async def test_a_caller_that_is_gone_harms_nobody() -> None:
    async with listening() as ours:
        port = ours.addresses[0][1]
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(plain("bind", BIND.replace(b'"a"', b'"' + b"a" * 50 + b'"')))
            await writer.drain()
            writer.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(plain("filter", b"{}"))
        assert await answer(reader) == b'{"asked":2,"sum":248}'
        writer.close()
