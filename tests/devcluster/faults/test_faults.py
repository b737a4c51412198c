"""Every fault of the proxy, each with certainty: what the client sees and what the server has done."""

import asyncio
import collections
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy, Plan
from tests.support import api_client
from tests.support.api_client import Api, configmap, pod
from tests.support.wait import PATIENCE


@pytest.fixture
async def proxy(server: ApiServer, api: Api) -> AsyncIterator[FaultProxy]:
    """A proxy before the server, and in `api` a client that speaks through it."""
    async with FaultProxy(server.url, seed=7) as proxy:
        yield proxy
        proxy.plan = Plan()


@pytest.fixture
def through(proxy: FaultProxy, api: Api) -> Api:
    client = Api(proxy.url, api.session)
    client.namespace, client.pods, client.configmaps = api.namespace, api.pods, api.configmaps
    return client


async def test_without_a_plan_everything_passes_unchanged(proxy: FaultProxy, through: Api, api: Api) -> None:
    await through.create(api.configmaps, configmap(colour="red"))
    direct, passed = await api.get(api.configmaps, limit=1), await through.get(api.configmaps, limit=1)
    assert (direct.code, direct.body) == (passed.code, passed.body)
    missing = await through.get(f"{api.configmaps}/none")
    assert (missing.code, missing.reason) == (404, "NotFound")
    patched = await through.patch(f"{api.configmaps}/settings", {"data": {"colour": "blue"}})
    assert patched.body["data"] == {"colour": "blue"}
    assert set(proxy.counts) == {plan.PASSED}


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        (plan.CONFLICT, 409, "Conflict"),
        (plan.TOO_MANY, 429, "TooManyRequests"),
        (plan.SERVER_ERROR, 500, "InternalError"),
        (plan.UNAVAILABLE, 503, "ServiceUnavailable"),
    ],
)
async def test_a_refused_write_never_reaches_the_server(
    proxy: FaultProxy, through: Api, api: Api, fault: str, code: int, reason: str
) -> None:
    proxy.plan = Plan(rates={fault: 1.0}, retry_after=3)
    answer = await through.call("POST", api.configmaps, configmap())
    assert (answer.code, answer.reason, answer.body["kind"]) == (code, reason, "Status")
    assert (answer.headers.get("Retry-After") == "3") is (code == 429)
    assert proxy.counts == {fault: 1}
    assert (await api.get(f"{api.configmaps}/settings")).code == 404


async def test_latency_delays_and_then_passes(proxy: FaultProxy, through: Api, api: Api) -> None:
    proxy.plan = Plan(rates={plan.LATENCY: 1.0}, latency=(0.1, 0.1))
    start = time.monotonic()
    assert (await through.get(api.pods)).code == 200
    assert time.monotonic() - start >= 0.1


async def test_a_lost_reply_was_executed(proxy: FaultProxy, through: Api, api: Api) -> None:
    await api.create(api.pods, pod())
    proxy.plan = Plan(rates={plan.LOST_REPLY: 1.0})
    with pytest.raises(aiohttp.ClientError):
        await through.bind("train", "node-1")
    assert (await api.get(f"{api.pods}/train")).body["spec"]["nodeName"] == "node-1"


async def test_a_late_write_is_executed_after_the_client_was_told_nothing(
    proxy: FaultProxy, through: Api, api: Api
) -> None:
    await api.create(api.pods, pod())
    proxy.plan = Plan(rates={plan.LATE_WRITE: 1.0}, late_write=(0.1, 0.1))
    with pytest.raises(aiohttp.ClientError):
        await through.bind("train", "node-1")
    assert "nodeName" not in (await api.get(f"{api.pods}/train")).body["spec"]
    await proxy.settle()
    assert (await api.get(f"{api.pods}/train")).body["spec"]["nodeName"] == "node-1"


async def test_only_eligible_requests_are_touched(proxy: FaultProxy, through: Api, api: Api) -> None:
    proxy.plan = Plan(rates={plan.UNAVAILABLE: 1.0}, eligible=lambda method, path: path.endswith("/binding"))
    await through.create(api.pods, pod())
    assert (await through.bind("train", "node-1")).code == 503
    proxy.plan = Plan(rates={plan.UNAVAILABLE: 1.0}, eligible=plan.writes)
    assert (await through.get(api.pods)).code == 200
    assert (await through.bind("train", "node-1")).code == 503


async def test_an_upstream_that_is_gone_looks_gone(api: Api) -> None:
    async with FaultProxy("http://127.0.0.1:1") as proxy:
        with pytest.raises(aiohttp.ClientError):
            await Api(proxy.url, api.session).get("/version")


async def test_a_watch_is_streamed_as_it_comes(proxy: FaultProxy, through: Api, api: Api) -> None:
    async with through.watch(api.configmaps, resourceVersion=(await api.get(api.configmaps)).version) as watch:
        for name in ("a", "b"):
            await api.create(api.configmaps, configmap(name, data="x" * 300_000))
            assert await asyncio.wait_for(watch.named(1), 2) == [("ADDED", name)]


async def test_a_watch_is_cut_after_some_events(proxy: FaultProxy, through: Api, api: Api) -> None:
    proxy.plan = Plan(rates={plan.WATCH_CUT: 1.0}, watch_events=(2, 2), watch_seconds=(9, 9))
    for name in "abc":
        await api.create(api.configmaps, configmap(name))
    for _ in range(6):  # some of them end with a clean end, some with a broken connection
        seen = []
        try:
            async with through.watch(api.configmaps, resourceVersion="0") as watch:
                while (event := await watch.event()) is not None:
                    seen.append(event[1]["metadata"]["name"])
        except aiohttp.ClientError:
            pass
        assert len(seen) <= 2
    assert proxy.counts[plan.WATCH_CUT] == 6


async def test_a_watch_is_cut_after_a_while_even_without_events(proxy: FaultProxy, through: Api, api: Api) -> None:
    proxy.plan = Plan(rates={plan.WATCH_CUT: 1.0}, watch_events=(5, 5), watch_seconds=(0.1, 0.1))
    async with asyncio.timeout(PATIENCE):
        try:
            async with through.watch(api.configmaps, resourceVersion="0") as watch:
                assert await watch.event() is None
        except aiohttp.ClientError:
            pass


async def test_a_silent_watch_stays_open_and_passes_nothing(proxy: FaultProxy, through: Api, api: Api) -> None:
    proxy.plan = Plan(rates={plan.WATCH_SILENT: 1.0}, watch_events=(1, 1), watch_seconds=(9, 9))
    async with through.watch(api.configmaps, resourceVersion="0") as watch:
        await api.create(api.configmaps, configmap("a"))
        assert await watch.named(1) == [("ADDED", "a")]
        await api.create(api.configmaps, configmap("b"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.event(), 0.3)


async def test_an_earlier_event_is_sent_again(proxy: FaultProxy, through: Api, api: Api) -> None:
    proxy.plan = Plan(rates={plan.WATCH_REPEAT: 1.0})
    async with through.watch(api.configmaps, resourceVersion="0") as watch:
        for name in "ab":
            await api.create(api.configmaps, configmap(name))
        assert await watch.named(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "a")]
    assert proxy.counts[plan.WATCH_REPEAT] == 1


async def test_a_late_event_comes_after_later_ones_or_after_a_while(proxy: FaultProxy, through: Api, api: Api) -> None:
    proxy.plan = Plan(rates={plan.WATCH_LATE: 1.0}, held_events=(1, 1), held_seconds=9)
    async with through.watch(api.configmaps, resourceVersion="0") as watch:
        await api.create(api.configmaps, configmap("late"))
        await asyncio.sleep(0.1)
        assert proxy.counts[plan.WATCH_LATE] == 1
        proxy.plan = Plan()
        await api.create(api.configmaps, configmap("later"))
        assert await watch.named(2) == [("ADDED", "later"), ("ADDED", "late")]
        proxy.plan = Plan(rates={plan.WATCH_LATE: 1.0}, held_seconds=0.1)
        await api.create(api.configmaps, configmap("alone"))
        assert await asyncio.wait_for(watch.named(1), 3) == [("ADDED", "alone")]


def test_nothing_is_held_back_beyond_a_bookmark() -> None:
    disorder = plan.Disorder(random.Random(1), collections.Counter())
    holding = Plan(rates={plan.WATCH_LATE: 1.0}, held_events=(3, 3))
    assert disorder.feed(b'{"type":"ADDED"}', holding, now=0) == []
    bookmark = b'{"type":"BOOKMARK"}'
    assert disorder.feed(bookmark, holding, now=0) == [b'{"type":"ADDED"}', bookmark]


def test_equal_seeds_make_equal_faults() -> None:
    chaos = Plan(rates={plan.LATENCY: 0.2, plan.CONFLICT: 0.2, plan.LOST_REPLY: 0.2})
    runs = []
    for seed in (1, 1, 2):
        dice = random.Random(seed)
        runs.append([chaos.choose(dice, "POST", "/x", False) for _ in range(50)])
    assert runs[0] == runs[1] != runs[2]
    assert set(runs[0]) == {None, plan.LATENCY, plan.CONFLICT, plan.LOST_REPLY}


def test_a_read_never_conflicts_and_never_writes_late() -> None:
    chaos = Plan(rates={plan.CONFLICT: 0.5, plan.LATE_WRITE: 0.5})
    assert {chaos.choose(random.Random(i), "GET", "/x", False) for i in range(50)} == {None}


@pytest.mark.parametrize("rates", [{"thunder": 0.1}, {plan.LATENCY: 1.5}, {plan.LATENCY: 0.6, plan.LOST_REPLY: 0.6}])
def test_a_plan_that_makes_no_sense_is_refused(rates: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="fault"):
        Plan(rates=rates)


async def test_whatever_goes_wrong_a_pod_is_bound_once(server: ApiServer, proxy: FaultProxy, through: Api) -> None:
    kinds = (plan.LATENCY, plan.TOO_MANY, plan.SERVER_ERROR, plan.UNAVAILABLE, plan.LOST_REPLY, plan.LATE_WRITE)
    for i in range(20):
        await through.create(through.pods, pod(f"p-{i}"))
    proxy.plan = Plan(rates=dict.fromkeys(kinds, 0.12), latency=(0, 0.01), late_write=(0, 0.05))

    async def persist(name: str) -> None:
        code = 0
        while code not in (201, 409):
            try:
                code = (await through.bind(name, "node-1")).code
            except aiohttp.ClientError:
                continue

    await asyncio.gather(*(persist(f"p-{i}") for i in range(20)))
    await proxy.settle()
    bound = [entry.path for entry in server.audit if entry.path.endswith("/binding") and entry.code == 201]
    assert len(bound) == len(set(bound)) == 20


async def test_the_token_of_the_upstream_can_be_the_proxy_s_own(tmp_path: Path) -> None:
    async with (
        ApiServer(token="secret") as server,
        FaultProxy(server.url, token="secret") as proxy,
        api_client.connect(proxy.url) as api,
    ):
        assert (await api.get("/version")).code == 200
        config = proxy.write_kubeconfig(tmp_path / "kubeconfig")
        assert proxy.url in config.read_text()
