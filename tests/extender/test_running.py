"""The extender while it runs: whom it wakes, what it says unasked, and what it counts."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest

from gpushare.core.facts import names, objects
from gpushare.core.ledger import holding as core_holding
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy, Plan
from gpushare.extender import binder, events, housekeeping, watches
from gpushare.kube import pod_requests
from gpushare.kube.client import Api
from gpushare.kube.errors import ApiError, Unreachable
from tests.support import embedded_objects, extender_in_process, extender_process, wait
from tests.support.builders import node_state
from tests.support.embedded_objects import UNSCHEDULABLE, woken


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """One node, two GPUs of 8000 MiB."""
    async with ApiServer(bookmark_seconds=0.2) as server:
        embedded_objects.create(server, embedded_objects.node("a", 8000, 8000))
        yield server


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAUSE", 0.01)


def slow_bindings(seconds: float) -> Plan:
    late = (seconds, seconds)
    return Plan(rates={plan.LATENCY: 1.0}, latency=late, eligible=lambda method, path: path.endswith("/binding"))


# Wake-ups


async def test_a_refused_pod_is_touched_when_memory_comes_free(server: ApiServer) -> None:
    async with extender_in_process.running(server) as extender:
        for name in ("p", "q"):
            await extender_process.bound(server, extender, embedded_objects.pod(name, 6000))
        waits = embedded_objects.create(server, embedded_objects.pod("waits", 5000))
        refused = await extender.filter(waits, "a")
        assert refused["FailedAndUnresolvableNodes"] == {"a": "no single GPU has 5000 MiB free"}
        await asyncio.sleep(0.2)
        assert woken(server, "waits") is None
        embedded_objects.delete(server, "p")
        await wait.eventually(lambda: woken(server, "waits"), "the wake-up")
        assert (await extender.filter(waits, "a"))["NodeNames"] == ["a"]


async def test_a_terminating_pod_wakes_nobody_until_it_is_gone(server: ApiServer) -> None:
    async with extender_in_process.running(server) as extender:
        await extender_process.bound(server, extender, embedded_objects.pod("p", whole=2))
        waits = embedded_objects.create(server, embedded_objects.pod("waits", 5000))
        assert (await extender.filter(waits, "a"))["NodeNames"] == []
        embedded_objects.delete(server, "p", grace=30)
        await asyncio.sleep(0.2)
        assert woken(server, "waits") is None
        embedded_objects.delete(server, "p")
        await wait.eventually(lambda: woken(server, "waits"), "the wake-up")


async def test_a_refused_pod_is_touched_when_an_assumption_expires(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_holding, "ASSUME_SECONDS", 0.5)
    async with extender_in_process.running(server) as extender:
        holds = embedded_objects.create(server, embedded_objects.pod("holds", whole=2))
        waits = embedded_objects.create(server, embedded_objects.pod("waits", 5000))
        assert (await extender.filter(holds, "a"))["NodeNames"] == ["a"]
        assert (await extender.filter(waits, "a"))["NodeNames"] == []
        await wait.eventually(lambda: woken(server, "waits"), "the wake-up")


async def test_a_refused_pod_is_touched_when_a_binding_is_undone(server: ApiServer) -> None:
    async with (
        FaultProxy(server.url, slow_bindings(0.5)) as proxy,
        extender_in_process.running(server, proxy.url) as extender,
    ):
        fails = embedded_objects.create(server, embedded_objects.pod("fails", whole=2))
        waits = embedded_objects.create(server, embedded_objects.pod("waits", 5000))
        binding = asyncio.create_task(extender.bind(fails, "a"))
        await wait.eventually(lambda: proxy.counts[plan.LATENCY], "the write")
        assert (await extender.filter(waits, "a"))["NodeNames"] == []
        embedded_objects.delete(server, "fails")
        assert await binding != ""
        await wait.eventually(lambda: woken(server, "waits"), "the wake-up")


async def test_a_touch_that_fails_is_tried_again_after_a_moment(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "RETRY_SECONDS", 0.2)
    async with FaultProxy(server.url) as proxy, extender_in_process.running(server, proxy.url) as extender:
        await extender_process.bound(server, extender, embedded_objects.pod("p", whole=2))
        waits = embedded_objects.create(server, embedded_objects.pod("waits", 5000))
        await extender.filter(waits, "a")
        proxy.plan = Plan(rates={plan.CONFLICT: 1.0}, eligible=lambda method, path: method == "PATCH")
        embedded_objects.delete(server, "p")
        await wait.eventually(lambda: proxy.counts[plan.CONFLICT], "the first try")
        await asyncio.sleep(0.5)
        assert proxy.counts[plan.CONFLICT] <= 4  # not as fast as it can
        assert woken(server, "waits") is None
        proxy.plan = Plan()
        await wait.eventually(lambda: woken(server, "waits"), "the wake-up")


async def test_a_pod_that_is_another_one_by_now_is_not_touched_again(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "RETRY_SECONDS", 0.01)
    tries = []

    async def foreign(*_: object) -> None:
        tries.append(1)
        raise ApiError(422, "Invalid", "metadata.uid: field is immutable")

    async with extender_in_process.running(server) as extender:
        await extender_process.bound(server, extender, embedded_objects.pod("p", whole=2))
        await extender.filter(embedded_objects.create(server, embedded_objects.pod("waits", 5000)), "a")
        monkeypatch.setattr(pod_requests, "annotate", foreign)
        embedded_objects.delete(server, "p")
        await wait.eventually(lambda: bool(tries), "the try")
        await asyncio.sleep(0.3)
    assert len(tries) == 1


async def test_a_pod_that_waited_before_we_were_started_is_woken(server: ApiServer) -> None:
    embedded_objects.create(server, embedded_objects.pod("waits", 5000))
    embedded_objects.set_status(server, "waits", conditions=[UNSCHEDULABLE])
    async with extender_in_process.running(server):
        await wait.eventually(lambda: woken(server, "waits"), "the wake-up")


async def test_a_pod_refused_while_a_list_is_read_is_not_forgotten(server: ApiServer) -> None:
    """It is younger than the list; the watch then shows it as it was created, and its condition after that."""
    async with extender_in_process.running(server) as extender:
        made = embedded_objects.pod("waits", 9000)
        made["metadata"] |= {"uid": "uid-waits", "creationTimestamp": "2026-11-15T12:00:00Z"}
        assert (await extender.filter(made, "a"))["NodeNames"] == []
        sink, refused = extender.extender.pods, extender.extender.life.wakeups
        assert "uid-waits" in refused
        sink.relisted(set())
        sink.upsert(msgspec.convert(made, objects.Pod))
        sink.upsert(msgspec.convert({**made, "status": {"conditions": [UNSCHEDULABLE]}}, objects.Pod))
        assert "uid-waits" in refused


# Events


async def test_events_say_where_a_pod_went_and_why_another_waits(server: ApiServer) -> None:
    async with extender_in_process.running(server) as extender:
        await extender_process.bound(server, extender, embedded_objects.pod("train", 7000))
        await extender_process.bound(server, extender, embedded_objects.pod("pair", 1000, 5000))
        embedded_objects.create(server, embedded_objects.pod("llm", 3500))
        embedded_objects.set_status(server, "llm", conditions=[UNSCHEDULABLE])
        embedded_objects.create(server, embedded_objects.pod("giant", 50000))
        embedded_objects.create(server, embedded_objects.pod("probe", "4Gi"))
        await wait.eventually(lambda: len(embedded_objects.events(server)) >= 5, "five events")
        await asyncio.sleep(0.2)
    told = {(kind, reason, name): text for kind, reason, name, text in embedded_objects.events(server)}
    assert told == {
        ("Normal", "GPUAssigned", "train"): "a GPU 0: 7000 MiB for c0; 1000 of 8000 MiB left.",
        ("Normal", "GPUAssigned", "pair"): "a: GPU 0 1000 MiB for c0, GPU 1 5000 MiB for c1.",
        ("Warning", "InvalidGPURequest", "probe"): (
            'aliyun.com/gpu-mem counts MiB, not bytes: container c0 asks 4Gi, read as 4294967296 MiB. Write "4096".'
        ),
        ("Warning", "NeverFits", "giant"): (
            "No GPU is as large as 50000 MiB; the largest is 8000 MiB (a). "
            "Ask less, or several GPUs: annotation aliyun.com/gpu-count."
        ),
        ("Warning", "NoGPUFits", "llm"): (
            "No single GPU has 3500 MiB free. Closest: a GPU 1, 3000 of 8000 MiB free, 500 short. "
            "More: kubectl gpushare why llm -n default"
        ),
    }
    assert len(embedded_objects.events(server)) == 5


async def test_a_pod_that_waits_for_something_else_gets_no_word(server: ApiServer) -> None:
    async with extender_in_process.running(server) as extender:
        embedded_objects.create(server, embedded_objects.pod("fits", 1000))
        embedded_objects.set_status(server, "fits", conditions=[UNSCHEDULABLE])
        embedded_objects.create(server, embedded_objects.pod("new", 1000))
        await wait.eventually(lambda: len(extender.extender.life.pending.shown) == 2, "both seen")
        await asyncio.sleep(0.3)
    assert embedded_objects.events(server) == []


async def test_many_new_pods_that_fit_do_not_keep_anybody_waiting(server: ApiServer) -> None:
    """They are looked at one by one, with a turn for others in between."""
    for number in range(300):
        embedded_objects.create(server, embedded_objects.pod(f"new-{number}", 1000))
    async with extender_in_process.running(server) as extender:
        asked = embedded_objects.find(server, "new-0")
        assert asked is not None
        assert (await extender.filter(asked, "a"))["NodeNames"] == ["a"]
        embedded_objects.create(server, embedded_objects.pod("giant", 50000))
        await wait.eventually(lambda: embedded_objects.events(server), "the event about the last")
    assert [event[1:3] for event in embedded_objects.events(server)] == [("NeverFits", "giant")]


async def test_nothing_is_said_of_nodes_that_were_not_read_yet(server: ApiServer) -> None:
    embedded_objects.create(server, embedded_objects.pod("train", 5000))
    blind = Plan(rates={plan.UNAVAILABLE: 1.0}, eligible=lambda method, path: path.endswith("/nodes"))
    async with (
        FaultProxy(server.url, blind) as proxy,
        extender_in_process.running(server, proxy.url, ready=False) as extender,
    ):
        await wait.eventually(lambda: extender.extender.watches["pods"].synced, "the list of pods")
        await asyncio.sleep(0.3)
        assert "nodes: 503" in extender.extender.not_ready()
        proxy.plan = Plan()
        await wait.eventually(lambda: not extender.extender.not_ready(), "the list of nodes")
        await asyncio.sleep(0.3)
    assert embedded_objects.events(server) == []


async def test_a_cluster_without_a_gpu_is_no_reason_to_fall_over() -> None:
    async with ApiServer() as server, extender_in_process.running(server) as extender:
        made = embedded_objects.create(server, embedded_objects.pod("train", 5000))
        embedded_objects.set_status(server, "train", conditions=[UNSCHEDULABLE])
        await wait.eventually(lambda: embedded_objects.events(server), "the event")
        assert embedded_objects.events(server)[0][1:3] == ("NeverFits", "train")
        assert (await extender.filter(made, "a"))["FailedAndUnresolvableNodes"] == {"a": "node(s) without a shared GPU"}
        assert await extender.inspect() == {}


async def test_the_work_of_a_second_extender_is_noticed(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "SETTLE_SECONDS", 0.0)
    async with extender_in_process.running(server) as extender:
        made = embedded_objects.create(server, embedded_objects.pod("train", 5000))
        await wait.eventually(lambda: made["metadata"]["uid"] in extender.extender.life.pending.shown, "the watch")
        notes = {names.EXTENDER: "deadbeef", f"{names.VISIBLE_PREFIX}0": embedded_objects.uuid("a", 1)}
        server.registry.bind(
            "default", {"metadata": {"name": "train", "annotations": notes}, "target": {"kind": "Node", "name": "a"}}
        )
        await wait.eventually(lambda: embedded_objects.events(server), "the event")
        assert embedded_objects.events(server)[0][:3] == ("Warning", "SecondExtender", "train")
        assert "deadbeef" in embedded_objects.events(server)[0][3]
        assert (await extender.metrics())["gpushare_second_extender_total"] == 1
        assert await extender.inspect() == {"a": [(0, 8000), (5000, 8000)]}


# While a binding is under way


async def test_while_a_pod_is_being_bound_filter_says_so(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binder, "ANSWER_SECONDS", 0.1)
    async with (
        FaultProxy(server.url, slow_bindings(0.5)) as proxy,
        extender_in_process.running(server, proxy.url) as extender,
    ):
        made = embedded_objects.create(server, embedded_objects.pod("train", 5000))
        assert await extender.bind(made, "a") == "binding train to a is still in progress"
        assert (await extender.filter(made, "a"))["Error"] == "it is being bound to a right now"
        assert await extender.prioritize(made, "a") == []
        other = embedded_objects.create(server, embedded_objects.pod("other", whole=2))
        assert (await extender.filter(other, "a"))["NodeNames"] == []
        await extender.extender.binder.finish(5)
        assert (embedded_objects.find(server, "train") or {})["spec"]["nodeName"] == "a"
        assert await extender.bind(made, "a") == ""


# Pods that no list shows


async def test_a_pod_that_no_list_shows_is_asked_for_one_by_one(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "RETRY_SECONDS", 0.2)
    async with extender_in_process.running(server) as extender:
        there = await extender_process.bound(server, extender, embedded_objects.pod("there", 1000))
        gone = await extender_process.bound(server, extender, embedded_objects.pod("gone", 2000))
        asked: Counter[str] = Counter()
        read = pod_requests.read

        async def read_badly(api: Api, namespace: str, name: str) -> objects.Pod | None:
            asked[name] += 1
            if asked[name] == 1:
                raise Unreachable("no", sent=True)
            return await read(api, namespace, name) if name == "there" else None

        monkeypatch.setattr(pod_requests, "read", read_badly)
        holding = extender.ledger.holding
        uids = [pod["metadata"]["uid"] for pod in (there, gone)]
        extender.extender.pods.unsure += [found.pod for uid in uids if (found := holding(uid)) is not None]
        await wait.eventually(lambda: holding(uids[1]) is None, "the end of the one that is gone")
        await asyncio.sleep(0.1)
        assert asked == {"there": 2, "gone": 2}
        assert holding(uids[0]) is not None


async def test_few_of_many_pods_that_no_list_shows_are_asked_for_at_once(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with extender_in_process.running(server) as extender:
        made = await extender_process.bound(server, extender, embedded_objects.pod("p", 1000))
        asked, go = [], asyncio.Event()
        read = pod_requests.read

        async def read_late(api: Api, namespace: str, name: str) -> objects.Pod | None:
            asked.append(name)
            await go.wait()
            return await read(api, namespace, name)

        monkeypatch.setattr(pod_requests, "read", read_late)
        unsure = extender.extender.pods.unsure
        holding = extender.ledger.holding(made["metadata"]["uid"])
        assert holding is not None
        unsure += [holding.pod] * 100
        await wait.eventually(lambda: asked and not unsure, "the questions")
        await asyncio.sleep(0.1)
        assert len(asked) == housekeeping.READS
        go.set()
        await wait.eventually(lambda: len(asked) == 100, "the others")


# What is counted


async def test_everything_that_is_promised_to_be_counted_is_counted(
    server: ApiServer,
) -> None:
    embedded_objects.create(server, embedded_objects.node("b", 4000))
    async with extender_in_process.running(server) as extender:
        p, q, r = (embedded_objects.create(server, embedded_objects.pod(name, 6000)) for name in ("p", "q", "r"))
        small = embedded_objects.create(server, embedded_objects.pod("small", 1000))
        await extender.filter(p, "a", "b")  # one node is left: held
        assert await extender.bind(p, "a") == ""  # and the hold was right
        await extender.prioritize(small, "a", "b")
        held = (await extender.metrics())['gpushare_pods{state="held"}']
        assert (
            await extender.bind(small, "b" if node_state(extender.ledger, "a").effective().units[0] == 7000 else "a")
            == ""
        )
        await extender.bind(q, "a")
        assert await extender.bind(r, "a") == "a: no single GPU has 6000 MiB free"
        await extender.filter(r, "a", "b")
        await extender.filter(embedded_objects.create(server, embedded_objects.pod("bytes", "4Gi")), "a")
        await extender.post("choose", extender_process.question(p, ["a"]))  # bound already: an Error
        await extender.post("preempt", {"Pod": r, "NodeNameToMetaVictims": {"a": {"Pods": []}}})
        await extender.inspect()
        await extender.get("/gpushare-scheduler/explain?pod=r")
        embedded_objects.delete(server, "q")
        await wait.eventually(lambda: woken(server, "r"), "the wake-up")
        await wait.eventually(lambda: len(embedded_objects.events(server)) >= 3, "the events")
        now = await extender.metrics()

    assert held == 1
    for verb, count in (
        ("filter", 3),
        ("choose", 1),
        ("prioritize", 1),
        ("bind", 4),
        ("preempt", 1),
        ("inspect", 1),
        ("explain", 1),
    ):
        assert now[f'gpushare_request_seconds_count{{verb="{verb}"}}'] == count, verb
    assert now['gpushare_refusals_total{code="NoSingleGpu"}'] == 1
    assert now['gpushare_refusals_total{code="TooLarge"}'] == 1
    assert now['gpushare_refusals_total{code="NotMemory"}'] == 1
    assert now["gpushare_bind_conflicts_total"] == 1
    assert now['gpushare_holds_total{outcome="right"}'] == 1
    assert now['gpushare_holds_total{outcome="wrong"}'] == 1
    assert now["gpushare_bound_total"] == 3
    assert now["gpushare_wake_ups_total"] == 1
    assert now["gpushare_second_extender_total"] == 0
    assert now['gpushare_memory_granted{unit="MiB"}'] == 7000
    assert now['gpushare_memory_free{unit="MiB"}'] == 20000 - 7000
    assert now['gpushare_memory_granted{unit="GiB"}'] == 0
    assert [now[f'gpushare_pods{{state="{state}"}}'] for state in ("held", "reserved", "bound")] == [0, 0, 2]
    assert {now[f'gpushare_watch_age_seconds{{of="{of}"}}'] < 60 for of in ("nodes", "pods", "configmaps")} == {True}
    assert now['gpushare_events{outcome="sent"}'] >= 3
    assert now['gpushare_events{outcome="dropped"}'] == now['gpushare_events{outcome="failed"}'] == 0


async def test_a_pod_that_does_not_exist_is_explained_as_it_is_sent(server: ApiServer) -> None:
    """Both pins in one cluster: the env of the admission policy says which nodes are meant, and nothing is guessed."""
    embedded_objects.create(server, embedded_objects.node("p", 4000, pin="plugin"))
    async with extender_in_process.running(server) as extender:
        for direct, amount, code, where in (
            (True, 6000, "Fits", "a"),
            (False, 3000, "Fits", "p"),
            (False, 6000, "TooLarge", "p"),
            (True, 9000, "TooLarge", "a"),
        ):
            said = await extender.post("explain", embedded_objects.pod("draft", amount, direct=direct))
            assert (said["code"], said["nodes"][0]["name"]) == (code, where)
