"""Whatever bytes come, however they are cut: the answer is the one that aiohttp alone would give."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.extender.serving.both import Both, Piece

BIND = json.dumps({"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "abc"}).encode()


def plain(verb: str = "filter", body: bytes = b"{}", *more: str, length: str = "") -> bytes:
    lines = [
        f"POST /gpushare-scheduler/{verb} HTTP/1.1", "Host: 127.0.0.1:32766", "User-Agent: Go-http-client/1.1",
        f"Content-Length: {length or len(body)}", "Content-Type: application/json", "Accept-Encoding: gzip", *more,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode() + body


def raw(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


POST = "POST /gpushare-scheduler/filter HTTP/1.1"
CHUNKED = raw(POST, "Host: x", "Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n")
CASES: dict[str, bytes] = {
    "plain": plain(),
    "each verb": b"".join(plain(verb, b"{}") for verb in ("filter", "choose", "prioritize", "preempt")),
    "a bug of ours": plain("filter", b"bug") + plain("prioritize", b"bug") + plain("preempt", b"bug"),
    "a binding": plain("bind", BIND),
    "a binding of nothing": plain("bind", b"{}"),
    "a binding, and more before its answer": plain("bind", BIND) + plain("filter") + plain("bind", BIND),
    "an empty body": plain("filter", b""),
    "no length": raw(POST, "Host: x"),
    "a length of nothing": raw(POST, "Host: x", "Content-Length: "),
    "a negative length": plain(length="-1"),
    "a length with a sign": plain(length="+2"),
    "a length with zeros before": plain(length="002"),
    "a length that is no number": plain(length="2x"),
    "a length in Arabic digits": raw(POST, "Host: x", "Content-Length: \xb2"),
    "a length with an underscore": plain(length="1_0", body=b"0123456789"),
    "two lengths": plain("filter", b"{}", "Content-Length: 2"),
    "two different lengths": plain("filter", b"{}", "Content-Length: 1"),
    "two lengths in one line": plain(length="2, 2"),
    "an enormous length": plain(length="99999999999999999999999"),
    "a length, and chunks": raw(POST, "Host: x", "Content-Length: 2", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "chunks": CHUNKED,
    "chunks, and then a plain request": CHUNKED + plain(),
    "a plain request, and then chunks": plain() + CHUNKED,
    "bad chunks": raw(POST, "Host: x", "Transfer-Encoding: chunked", body=b"zz\r\n"),
    "an unknown transfer encoding": raw(POST, "Host: x", "Transfer-Encoding: rot13", body=b"{}"),
    "a packed body": plain("filter", b"\x1f\x8b", "Content-Encoding: gzip"),
    "to be closed": plain("filter", b"{}", "Connection: close"),
    "to be closed, and more": plain("filter", b"{}", "Connection: close") + plain(),
    "to be kept": plain("filter", b"{}", "Connection: keep-alive"),
    "HTTP/1.0": plain().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/1.0, kept": plain("filter", b"{}", "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9.9": plain().replace(b"HTTP/1.1", b"HTTP/9.9"),
    "http in small letters": plain().replace(b"HTTP/1.1", b"http/1.1"),
    "expecting": raw(POST, "Host: x", "Content-Length: 2", "Expect: 100-continue", body=b"{}"),
    "expecting too much": raw(POST, "Host: x", "Content-Length: 2", "Expect: tea", body=b"{}"),
    "an upgrade": plain("filter", b"{}", "Connection: Upgrade", "Upgrade: websocket") + plain(),
    "GET": raw("GET /gpushare-scheduler/filter HTTP/1.1", "Host: x"),
    "a probe": raw("GET /healthz HTTP/1.1", "Host: x"),
    "a plain request, and then a probe": plain() + raw("GET /version HTTP/1.1", "Host: x"),
    "another method": plain().replace(b"POST", b"PUT"),
    "an unknown method": plain().replace(b"POST", b"BREW"),
    "post in small letters": plain().replace(b"POST", b"post"),
    "another path": plain("Filter"),
    "a query": plain("filter?x=1"),
    "an escaped path": plain("%66ilter"),
    "a whole address": plain().replace(b"POST /", b"POST http://x/"),
    "no Host": plain().replace(b"Host: 127.0.0.1:32766\r\n", b""),
    "two Hosts": plain("filter", b"{}", "Host: y"),
    "spaces around a value": plain("filter", b"{}", "Accept:  */*  "),
    "no space before a value": plain("filter", b"{}", "Accept:*/*"),
    "an empty value": plain("filter", b"{}", "Accept: "),
    "a tab in a value": plain("filter", b"{}", "Accept: a\tb"),
    "a zero in a value": plain("filter", b"{}", "Accept: a\x00b"),
    "a letter beyond ASCII": plain("filter", b"{}", "Accept: ä"),
    "a space before the colon": plain("filter", b"{}", "Accept : x"),
    "a space in the name of a field": plain("filter", b"{}", "Acc ept: x"),
    "a field without a colon": plain("filter", b"{}", "Accept"),
    "a field without a name": plain("filter", b"{}", ": x"),
    "a folded field": plain("filter", b"{}", "Accept: a", " b"),
    "an unknown field": plain("filter", b"{}", "X-Request-Id: 7"),
    "fields in other letters": plain().replace(b"Content-Length", b"CONTENT-LENGTH").replace(b"Host", b"hOST"),
    "lines that end without CR": plain().replace(b"\r\n", b"\n"),
    "one line that ends without CR": plain().replace(b"gzip\r\n", b"gzip\n"),
    "a CR within a field": plain("filter", b"{}", "Accept: a\rb"),
    "empty lines before it": b"\r\n\r\n" + plain(),
    "a long head": plain("filter", b"{}", "Accept: " + "x" * 2000),
    "a head that is too long": plain("filter", b"{}", "Accept: " + "x" * 20_000),
    "many fields": plain("filter", b"{}", *(f"X-{number}: y" for number in range(300))),
    "a larger body": plain("filter", b"x" * 70_000),
    "a body over what is plain": plain("filter", b"x" * ((1 << 20) + 1)),
    "a body just not plain": plain("filter", b"x" * (1 << 20)),
    "a body that is not complete": plain(body=b"{}", length="5"),
    "bytes after the body": plain() + b"x",
    "empty lines after the body": plain() + b"\r\n\r\n" + plain(),
    "forty requests at once": plain() * 40,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00",
    "nonsense": b"nonsense\r\n\r\n",
    "nothing but an end": b"\r\n\r\n",
    "zeros": bytes(100),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    theirs = logging.getLogger("aiohttp.server")
    level = theirs.level
    theirs.setLevel(logging.CRITICAL)
    yield
    theirs.setLevel(level)


@pytest.mark.parametrize("case", CASES)
async def test_a_request_gets_the_answer_of_aiohttp_however_it_is_cut(case: str) -> None:
    data = CASES[case]
    at = data.find(b"\r\n\r\n") + 4
    cuts: dict[str, list[Piece]] = {
        "whole": [data],
        "at the body": [data[:at], data[at:]],
        "in halves": [data[: len(data) // 2], data[len(data) // 2 :]],
        "into bytes": [data[i : i + 1] for i in range(len(data))] if len(data) < 1000 else [data],
        "slowly": [data[: at + 1], None, data[at + 1 :]],
        "twice": [data, data],
    }
    for cut, pieces in cuts.items():
        ours, theirs = await Both().answers(*[piece for piece in pieces if piece != b""])
        assert (cut, ours) == (cut, theirs)


async def test_a_plain_request_is_answered_at_all() -> None:
    (written, closed), _ = await Both().answers(plain("filter", b"{}"))
    assert written.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n")
    assert written.endswith(b'\r\n\r\n{"asked":2,"sum":248}')
    assert not closed


_parts = st.one_of(
    st.sampled_from([data for data in CASES.values() if len(data) < 3000]),
    st.builds(plain, st.sampled_from(["filter", "choose", "bind"]), st.binary(max_size=50)),
    st.binary(max_size=30),
)


@st.composite
def _sent(draw: st.DrawFn) -> list[Piece]:
    """Some requests, perhaps with a few bytes changed, cut somewhere."""
    data = bytearray(b"".join(draw(st.lists(_parts, min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from([b"", b"\r", b"\n", b" ", b":", b"\x00", b"7"]))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=5)))
    pieces: list[Piece] = []
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        pieces += [bytes(data[begin:end])] * (end > begin) + [None] * draw(st.booleans())
    return pieces


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_sent())
def test_any_bytes_get_the_answer_of_aiohttp(pieces: list[Piece]) -> None:
    ours, theirs = asyncio.run(Both().answers(*pieces))
    assert ours == theirs
