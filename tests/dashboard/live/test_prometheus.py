"""A Prometheus server is asked for what is older; whatever goes wrong becomes one sentence beside what is known."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gpushare.dashboard.live import prometheus
from gpushare.dashboard.live.history import History
from gpushare.dashboard.live.past import Past
from gpushare.dashboard.live.prometheus import Prometheus, PrometheusError
from gpushare.dashboard.live.sums import Cluster

NOW = 1_800_000_000.0
START = NOW - 7 * 86_400
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(answer: Answer, **more: Any) -> AsyncIterator[tuple[Prometheus, list[dict[str, str]]]]:
    """A server that answers like this, and what it was asked."""
    asked: list[dict[str, str]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.query))
        return await answer(request)

    app = web.Application()
    app.add_routes([web.get("/prom/api/v1/query_range", handle)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as session:
            host = f"127.0.0.1:{runner.addresses[0][1]}"
            yield Prometheus(f"http://ada:secret@{host}/prom/", session, **more), asked
    finally:
        await runner.cleanup()


def series(values: list[tuple[float, str]], **labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": values}


def answering(*rows: tuple[str, dict[str, Any]]) -> Answer:
    """The series of those queries that begin with a word."""

    async def answer(request: web.Request) -> web.Response:
        found = [row for word, row in rows if request.query["query"].startswith(word)]
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": found}})

    return answer


async def test_a_gpu_is_asked_for_by_its_uuid_and_amounts_come_in_mib() -> None:
    who = {"namespace": "ml", "pod": "train", "pod_uid": "u-1"}
    rows = (
        ("max(gpushare_gpu_memory_total_bytes", series([(1.0, "80"), (2.0, "80")])),
        ("max(DCGM_FI_DEV_FB_USED", series([(2.0, "41.6")])),
        ("sum by (namespace, pod, pod_uid) (gpushare_container_memory_used", series([(2.0, "7")], **who)),
        (
            "sum by (namespace, pod, pod_uid) (gpushare_container_memory_granted",
            series([(1.0, "9"), (2.0, "9")], **who),
        ),
    )
    async with serving(answering(*rows)) as (server, asked):
        found = await server.gpu("n", 'GPU-"1\\', 3, START, NOW)
    assert found["times"] == [1.0, 2.0]
    assert (found["total"], found["used"], found["util"]) == ([80, 80], [None, 42], [None, None])
    assert found["shares"] == [
        {"namespace": "ml", "pod": "train", "uid": "u-1", "number": None, "granted": [9, 9], "used": [None, 7]}
    ]
    assert (found["source"], found["from"], found["note"]) == ("prometheus", 1.0, "")
    assert all(r'{UUID="GPU-\"1\\"}' in one["query"] for one in asked)
    assert {(one["step"], one["end"]) for one in asked} == {("2016", str(NOW))}
    assert len({one["start"] for one in asked}) == 1


async def test_a_gpu_without_a_uuid_is_asked_for_by_node_and_index() -> None:
    async with serving(answering(("max(DCGM_FI_DEV_GPU_UTIL", series([(1.0, "3")])))) as (server, asked):
        found = await server.gpu("n-1", "", 3, START, NOW)
    assert found["util"] == [3]
    assert asked[0]["query"] == 'max(gpushare_gpu_memory_total_bytes{node="n-1",gpu="3"}) / 1048576'
    assert 'DCGM_FI_DEV_GPU_UTIL{Hostname="n-1",gpu="3"}' in asked[3]["query"]


async def test_the_cluster_has_its_sums_and_who_waited() -> None:
    rows = (
        ("sum(max by (node, gpu) (gpushare_gpu_memory_total", series([(1.0, "100")])),
        ("max by (code)", series([(1.0, "2")], code="NoSingleGpu")),
        ("max by (code)", series([(1.0, "0")], code="TooLarge")),
    )
    async with serving(answering(*rows)) as (server, _):
        found = await server.cluster(START, NOW)
    assert (found["total"], found["used"], found["waiting"]) == ([100], [None], {"NoSingleGpu": [2]})


async def test_what_is_no_number_is_unknown() -> None:
    rows = series([(1.0, "NaN"), (2.0, "+Inf"), (3.0, "many"), (4.0, "1")])
    async with serving(answering(("sum(max by (UUID)", rows))) as (one, _):
        assert (await one.cluster(START, NOW))["used"] == [None, None, None, 1]


def text(body: str | bytes, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    return answer


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (answering(), prometheus.NOTHING),
        (text("<html>"), prometheus.NOT_READ),
        (text(b"\xff\xfe"), prometheus.NOT_READ),
        (text('{"status":"success","data":{"result":[{"values":[["x"]]}]}}'), prometheus.NOT_READ),
        (text("no", 404), "Prometheus at {host} refused: HTTP 404"),
        (text("", 302), "Prometheus at {host} refused: HTTP 302"),
        (text(json.dumps({"status": "error", "error": "too many\n"}), 422), "Prometheus at {host} refused: too many "),
    ],
)
async def test_a_bad_answer_is_one_sentence(answer: Answer, sentence: str) -> None:
    async with serving(answer) as (server, _):
        with pytest.raises(PrometheusError) as caught:
            await server.cluster(START, NOW)
    assert str(caught.value) == sentence.format(host=server.host)
    assert "secret" not in str(caught.value)


async def test_an_answer_is_read_only_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 1000)
    async with serving(text("x" * 1001)) as (server, _):
        with pytest.raises(PrometheusError, match="is too long"):
            await server.cluster(START, NOW)


async def test_no_answer_is_waited_for_only_so_long() -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    async with serving(never, timeout=0.05) as (server, _):
        with pytest.raises(PrometheusError, match=r"gave no answer within 0\.05 s"):
            await server.cluster(START, NOW)


async def test_a_server_that_is_not_there_is_one_sentence() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(PrometheusError, match=r"Prometheus at 127\.0\.0\.1:1 cannot be reached: "):
            await Prometheus("http://127.0.0.1:1", session).cluster(START, NOW)


def remembered(since: float) -> History:
    """Sampled until now."""
    history = History()
    while since <= NOW:
        history.sample(since, Cluster(total=5))
        since += 15
    return history


ASKED = answering(("sum(max by (node, gpu) (gpushare_gpu_memory_total", series([(1.0, "100")])))


async def test_prometheus_is_asked_for_what_is_not_in_memory() -> None:
    async with serving(ASKED) as (server, asked):
        past = Past(remembered(NOW - 3600), server, lambda: NOW)
        assert (await past.cluster("1h"))["source"] == "memory"
        assert not asked
        assert (await past.cluster("6h"))["source"] == "prometheus"
        assert (await past.cluster("7d"))["total"] == [100]
        assert (await Past(History(), server, lambda: NOW).cluster("1h"))["source"] == "prometheus"


async def test_what_is_in_memory_is_shown_with_the_sentence_if_prometheus_fails() -> None:
    async with serving(text("no", 503)) as (server, _):
        found = await Past(remembered(NOW - 60), server, lambda: NOW).cluster("7d")
    assert (found["source"], set(found["total"])) == ("memory", {5})
    assert found["note"] == f"Prometheus at {server.host} refused: HTTP 503"


async def test_without_prometheus_there_is_only_memory() -> None:
    past = Past(remembered(NOW - 60), None, lambda: NOW)
    assert (await past.cluster("7d"))["note"] == "what is older than 48 hours needs --prometheus"
    assert (await past.gpu("n", "GPU-1", 1, "1h"))["times"] == []
