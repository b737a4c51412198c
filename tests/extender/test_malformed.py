"""Whatever comes over HTTP: an answer in the protocol's own form, never a 5xx, and nothing promised is touched."""

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.extender import server
from tests.extender import mutants
from tests.support import embedded_objects, extender_in_process, extender_process, wait
from tests.support.extender_in_process import ExtenderInProcess

BODIES = 2_000
CONNECTIONS = 8
FILTER_KEYS = ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]
CONTENT_TYPES = (
    "application/json", "application/json; charset=utf-16", "text/plain", "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x", "application/vnd.kubernetes.protobuf", "nonsense", "",
)  # fmt: skip
ENCODINGS = ("gzip", "br", "deflate", "zstd", "identity", "rot13")


@pytest.fixture
async def extender() -> AsyncIterator[ExtenderInProcess]:
    """Two nodes with some pods on them, and one pod that waits."""
    async with ApiServer() as api_server:
        for name in ("a", "b"):
            embedded_objects.create(api_server, embedded_objects.node(name, 8000, 8000, 8000))
        embedded_objects.create(api_server, embedded_objects.pod("train", 3000, 2000))
        embedded_objects.create(api_server, embedded_objects.pod("other", 1000))
        async with extender_in_process.running(api_server) as extender, aiohttp.ClientSession() as session:
            for number in range(3):
                made = embedded_objects.create(api_server, embedded_objects.pod(f"run-{number}", 4000))
                answer = await _post(
                    session, extender, "bind", json.dumps(extender_process.binding(made, "a")).encode()
                )
                assert answer == (200, {"Error": ""})
            yield extender


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


async def _post(
    session: aiohttp.ClientSession, to: ExtenderInProcess, verb: str, body: bytes, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{to.port}{server.PREFIX}/{verb}"
    given = headers if headers is not None else {"Content-Type": "application/json"}
    sent = io.BytesIO(body) if len(body) > 1 << 20 else body
    async with session.post(url, data=sent, headers=given, skip_auto_headers=["Content-Type"]) as answer:
        return answer.status, json.loads((await answer.read()).decode("utf-8", "surrogateescape"))


async def _raw(to: ExtenderInProcess, *pieces: bytes, until_closed: bool = False) -> bytes:
    """Bytes over a connection of their own, and what comes back: all of it, or all that comes at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", to.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        async with asyncio.timeout(wait.PATIENCE):
            return await reader.read() if until_closed else await reader.read(1 << 16)
    finally:
        writer.close()


def _request(verb: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {server.PREFIX}/{verb} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def _is_well_formed(verb: str, answer: Any) -> bool:
    match verb:
        case "filter" | "choose":
            fits = answer["NodeNames"] if answer["NodeNames"] is not None else answer["Nodes"]["items"]
            return list(answer) == FILTER_KEYS and isinstance(fits, list) and isinstance(answer["Error"], str)
        case "prioritize":
            return isinstance(answer, list) and all(
                list(one) == ["Host", "Score"] and type(one["Score"]) is int for one in answer
            )
        case "preempt":
            return answer == {} or list(answer) == ["NodeNameToMetaVictims"]
        case "bind":
            return list(answer) == ["Error"] and isinstance(answer["Error"], str) and answer["Error"] != ""
    return isinstance(answer, dict) and answer["version"] == 1


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


async def test_thousands_of_broken_bodies_get_the_documented_answer_and_change_nothing(
    extender: ExtenderInProcess, session: aiohttp.ClientSession
) -> None:
    asked = embedded_objects.find(extender.server, "train")
    assert asked is not None
    valid, promised = mutants.requests(asked), extender.promised()
    kinds = [(verb, request) for verb, choice in valid.items() for request in choice]
    seeds = iter(range(BODIES))
    wrong: list[str] = []

    async def ask() -> None:
        for seed in seeds:
            dice = random.Random(seed)
            verb, request = dice.choice(kinds)
            body = mutants.broken(dice, request)
            headers = {"Content-Type": dice.choice(CONTENT_TYPES)} if dice.random() < 0.3 else None
            status, answer = await _post(session, extender, verb, body, headers)
            if status != 200 or not _is_well_formed(verb, answer):
                wrong.append(f"seed {seed}, {verb}: {status} {answer} to {body[:200]!r}")
            if verb == "filter" and body.lstrip()[:1] != b"{" and not answer["Error"]:
                wrong.append(f"seed {seed}: {body[:200]!r} was taken for a question")
            if "inside gpushare" in str(answer) and _is_utf8(body):
                wrong.append(f"seed {seed}, {verb}: a bug of ours at {body[:500]!r}")
            if extender.promised() != promised:
                wrong.append(f"seed {seed}, {verb}: changed the ledger with {body[:500]!r}")
                return

    await asyncio.gather(*(ask() for _ in range(CONNECTIONS)))
    assert wrong == []
    assert await _post(session, extender, "filter", json.dumps(valid["filter"][0]).encode()) == (
        200,
        {"Nodes": None, "NodeNames": ["a", "b"], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""},
    )


@pytest.mark.parametrize("where", ["name", "uid"])
async def test_whole_nodes_that_are_not_utf8_are_refused(
    extender: ExtenderInProcess, session: aiohttp.ClientSession, where: str
) -> None:
    asked, node = embedded_objects.find(extender.server, "train"), embedded_objects.node("a", 8000)
    node["metadata"][where] = "\udcff"
    body = json.dumps({"Pod": asked, "Nodes": {"items": [node]}, "NodeNames": None}, ensure_ascii=False)
    _, answer = await _post(session, extender, "filter", body.encode("utf-8", "surrogateescape"))
    assert answer["Error"].startswith("the request is not what a scheduler sends")


@pytest.mark.parametrize("verb", ["filter", "choose", "prioritize", "preempt", "bind", "explain"])
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_packed_body_is_not_unpacked(
    extender: ExtenderInProcess, session: aiohttp.ClientSession, verb: str, encoding: str
) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    status, answer = await _post(session, extender, verb, b"\x1f\x8b\x08 not really packed", headers)
    assert status == 200
    assert _is_well_formed(verb, answer)


async def test_ten_megabytes_of_nodes_are_read(extender: ExtenderInProcess, session: aiohttp.ClientSession) -> None:
    asked = embedded_objects.find(extender.server, "train")
    extra = [embedded_objects.node(f"n-{number}", 8000) | {"padding": "x" * 10_000} for number in range(1_000)]
    nodes = {"items": [embedded_objects.node("a", 8000, 8000), *extra]}
    body = json.dumps({"Pod": asked, "Nodes": nodes, "NodeNames": None}).encode()
    assert len(body) > 10_000_000
    status, answer = await _post(session, extender, "filter", body)
    assert (status, answer["NodeNames"], answer["Error"]) == (200, None, "")
    assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["a"]


@pytest.mark.parametrize("verb", ["filter", "choose", "prioritize", "preempt", "bind", "explain"])
async def test_a_body_over_the_limit_is_refused_in_the_protocols_form(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LARGEST_BODY", 1 << 20)
    async with ApiServer() as api_server, extender_in_process.running(api_server) as extender:
        answer = await _raw(extender, _request(verb, b'"' + b"x" * (3 << 20)), until_closed=True)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in head.lower()
    assert _is_well_formed(verb, json.loads(body))
    assert verb in ("prioritize", "preempt") or b"larger than 1 MiB" in body


async def test_a_slow_sender_costs_nobody_else_anything_and_is_answered_in_the_end(
    extender: ExtenderInProcess, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 1.0)
    question = json.dumps(
        extender_process.question(embedded_objects.find(extender.server, "train") or {}, ["a"])
    ).encode()
    senders = [asyncio.create_task(_raw(extender, _request("filter", question)[:-20])) for _ in range(50)]
    await asyncio.sleep(0.2)
    for _ in range(50):
        assert (await _post(session, extender, "filter", question))[1]["NodeNames"] == ["a"]
    assert not any(sender.done() for sender in senders)
    for answer in await asyncio.gather(*senders):
        assert b"the body did not arrive within 1 s" in answer


async def test_a_sender_that_hangs_up_in_the_middle_is_forgotten(
    extender: ExtenderInProcess, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    for verb in ("filter", "bind", "explain"):
        reader, writer = await asyncio.open_connection("127.0.0.1", extender.port)
        writer.write(_request(verb, b"{}" * 100)[:-50])
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.transport.abort()
        del reader
    await asyncio.sleep(0.05)
    assert (await _post(session, extender, "filter", b"{}"))[0] == 200
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_two_hundred_connections_at_once_are_all_answered(extender: ExtenderInProcess) -> None:
    question = json.dumps(
        extender_process.question(embedded_objects.find(extender.server, "train") or {}, ["a", "b"])
    ).encode()
    answers = await asyncio.gather(
        *(_raw(extender, _request("filter", question, "Connection: close"), until_closed=True) for _ in range(200))
    )
    assert all(answer.startswith(b"HTTP/1.1 200 ") and b'"NodeNames":["' in answer for answer in answers)


async def test_a_connection_is_used_again_and_again(extender: ExtenderInProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", extender.port)
    for body in (b"{}", b"nonsense", b"", b"[]", b"\xff"):
        writer.write(_request("filter", body))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert json.loads(await reader.readexactly(length))["Error"]
    writer.close()


async def test_pipelined_requests_are_answered_in_their_order(extender: ExtenderInProcess) -> None:
    body = _request("filter", b"{}") + _request("prioritize", b"{}") + _request("bind", b"{}", "Connection: close")
    answer = await _raw(extender, body, until_closed=True)
    assert answer.count(b"HTTP/1.1 200 ") == 3
    bodies = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200 OK")[1:]]
    assert [json.loads(body) for body in bodies][1:] == [[], {"Error": "no PodName is given"}]


async def test_a_body_in_pieces_is_put_together(extender: ExtenderInProcess) -> None:
    question = json.dumps(
        extender_process.question(embedded_objects.find(extender.server, "train") or {}, ["a"])
    ).encode()
    pieces = [question[i : i + 100] for i in range(0, len(question), 100)]
    chunks = [f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces]
    head = f"POST {server.PREFIX}/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    answer = await _raw(extender, head, *chunks, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"NodeNames":["a"]' in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /gpushare-scheduler/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /gpushare-scheduler/bind HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /gpushare-scheduler/bind HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cr\x00t\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",  # somebody speaks TLS
        b"nonsense\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_and_not_quoted_in_the_log(
    extender: ExtenderInProcess, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await _raw(extender, request_bytes)
    assert answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert "s3cr" not in caplog.text
    assert "aaaa" not in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/gpushare-scheduler/filter", 405),
        ("PUT", "/gpushare-scheduler/bind", 405),
        ("DELETE", "/gpushare-scheduler/inspect", 405),
        ("POST", "/version", 405),
        ("POST", "/metrics", 405),
        ("POST", "/gpushare-scheduler/filter/", 404),
        ("POST", "/gpushare-scheduler/Filter", 404),
        ("POST", "/filter", 404),
        ("GET", "/", 404),
        ("GET", "/debug/pprof/", 404),
        ("GET", "/gpushare-scheduler/inspect/no-such-node", 404),
        ("GET", "/gpushare-scheduler/inspect/%ff%00", 404),
        ("GET", "/gpushare-scheduler/explain", 404),
        ("GET", "/gpushare-scheduler/explain?pod=%zz&namespace=%ff", 404),
        ("GET", "/version", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("HEAD", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/gpushare-scheduler/inspect", 200),
        ("GET", "/gpushare-scheduler/inspect/a", 200),
        ("GET", "/gpushare-scheduler/explain?pod=train", 200),
        ("GET", "/gpushare-scheduler/explain?pod=run-0&namespace=default", 200),
    ],
)
async def test_each_path_has_its_method(
    extender: ExtenderInProcess, session: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    async with session.request(method, f"http://127.0.0.1:{extender.port}{path}") as answer:
        assert answer.status == status


async def test_a_bug_of_ours_is_an_error_in_the_answer_and_in_the_log(
    extender: ExtenderInProcess,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*_: object) -> Any:
        raise ZeroDivisionError("a bug")

    binding = json.dumps(extender_process.binding(embedded_objects.find(extender.server, "train") or {}, "a")).encode()
    for method in ("fitting", "ranked"):
        monkeypatch.setattr(extender.extender.verbs._ledger.__class__, method, fails)
    monkeypatch.setattr(extender.extender.binder.__class__, "_reserve_and_write", fails)
    monkeypatch.setattr("gpushare.core.explain.verdict.explaining", fails)
    question = json.dumps(
        extender_process.question(embedded_objects.find(extender.server, "train") or {}, ["a"])
    ).encode()
    assert (await _post(session, extender, "filter", question))[1]["Error"] == server.OUR_FAULT
    assert (await _post(session, extender, "prioritize", question)) == (200, [])
    assert (await _post(session, extender, "bind", binding)) == (200, {"Error": server.OUR_FAULT})
    assert (await _post(session, extender, "explain", b"{}")) == (
        200,
        {"version": 1, "nodes": [], "error": server.OUR_FAULT},
    )
    assert caplog.text.count("request failed") == 4
