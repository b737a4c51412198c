"""The stand-in scheduler around an extender that is slow, wrong or away, and an API server that drops connections."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from gpushare.core.facts import names
from gpushare.core.facts.intree import Node, Pod
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy, Plan
from gpushare.devcluster.scheduler import extenders, placing, sinks
from gpushare.devcluster.scheduler.cache import Cache
from gpushare.devcluster.scheduler.queue import Queue
from gpushare.extender.server import PREFIX
from gpushare.kube import client
from tests.contracts.scheduling import embedded
from tests.contracts.scheduling.cluster_under_test import PATIENCE, condition
from tests.contracts.scheduling.driver import Deeds
from tests.contracts.scheduling.embedded import Embedded
from tests.support import extender_process, pod_watch, wait
from tests.support.objects import Object

Answer = Callable[[Any], Awaitable[object]]
NODES = {"a": {"gpus": [8000], "cpu": 2}, "b": {"gpus": [8000], "cpu": 4}}
ASKS = {"name": "x", "containers": {"main": 1000}, "cpu": 1}


class Other:
    """An extender that takes every node, and answers as told. `asked` are the verbs."""

    def __init__(self, under_test: Embedded) -> None:
        self.asked: list[str] = []
        self.port = extender_process.free_port()
        self.answers: dict[str, Answer] = {"filter": self._all, "prioritize": self._first_is_best, "bind": self._bind}
        self._stage = under_test

    async def _all(self, args: Any) -> object:
        return {"NodeNames": args["NodeNames"], "Error": ""}

    async def _first_is_best(self, args: Any) -> object:
        return [{"Host": args["NodeNames"][0], "Score": 10}]

    async def _bind(self, args: Any) -> object:
        answer = await self._stage.api.bind(args["PodName"], args["Node"], uid=args["PodUID"])
        return {"Error": "" if answer.code == 201 else str(answer.body)}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post(f"{PREFIX}/{{verb}}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            yield
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        self.asked.append(verb)
        answer = await self.answers[verb](await request.json())
        return answer if isinstance(answer, web.Response) else web.json_response(answer)


@pytest.fixture
async def under_test() -> AsyncIterator[Embedded]:
    async with embedded.running() as under_test:
        under_test.filter_verb = "filter"
        await Deeds(under_test).node(NODES)
        yield under_test


@pytest.fixture
async def other(under_test: Embedded) -> AsyncIterator[Other]:
    """The extender and the scheduler that asks it."""
    other = Other(under_test)
    async with other.running(), under_test.scheduler(other.port):
        yield other


async def until_said(under_test: Embedded, name: str, reason: str, part: str) -> None:
    def said() -> bool:
        told = condition(under_test.watch.pods.get(name, {}))
        return told.get("reason") == reason and part in told["message"]

    await under_test.watch.until(f"{name}: {reason}, {part}", said, PATIENCE)


def writes(under_test: Embedded, end: str) -> int:
    return sum(entry.path.endswith(end) for entry in under_test.server.audit)


# The order of things


async def test_the_best_score_wins(under_test: Embedded, other: Other) -> None:
    await Deeds(under_test).make_pod(ASKS)
    await under_test.watch.until_bound("x")
    assert pod_watch.node_of(under_test.watch.pods["x"]) == under_test.nodes["a"]
    assert other.asked == ["filter", "prioritize", "bind"]


async def test_a_single_node_is_not_scored(under_test: Embedded, other: Other) -> None:
    await Deeds(under_test).make_pod({**ASKS, "cpu": 3})
    await under_test.watch.until_bound("x")
    assert other.asked == ["filter", "bind"]


async def test_a_missing_opinion_leaves_the_choice_to_the_scheduler(under_test: Embedded, other: Other) -> None:
    async def fails(_: Any) -> object:
        return web.Response(status=500)

    other.answers["prioritize"] = fails
    await Deeds(under_test).make_pod(ASKS)
    await under_test.watch.until_bound("x")
    assert pod_watch.node_of(under_test.watch.pods["x"]) == under_test.nodes["b"], "where more is free"


async def test_a_pod_counts_from_when_it_was_placed_and_the_next_is_asked_about_meanwhile(
    under_test: Embedded, other: Other
) -> None:
    let_go, deeds = asyncio.Event(), Deeds(under_test)

    async def slow(args: Any) -> object:
        await let_go.wait()
        return await other._bind(args)

    other.answers["bind"] = slow
    await deeds.make_pod({**ASKS, "cpu": 3})
    await deeds.make_pod({**ASKS, "name": "y", "cpu": 3})
    await deeds.make_pod({**ASKS, "name": "z", "cpu": 1})
    await until_said(under_test, "y", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
    await wait.eventually(lambda: other.asked.count("bind") == 2, "two bindings at a time")
    assert not any(pod_watch.node_of(pod) for pod in under_test.watch.pods.values())
    let_go.set()
    await under_test.watch.until_bound("x", "z")


async def test_a_failed_binding_gives_back_what_was_assumed(under_test: Embedded, other: Other) -> None:
    refused, deeds = asyncio.Event(), Deeds(under_test)

    async def not_x(args: Any) -> object:
        await refused.wait()
        return {"Error": "no GPU any more"} if args["PodName"] == "x" else await other._bind(args)

    other.answers["bind"] = not_x
    await deeds.make_pod({**ASKS, "cpu": 3})
    await deeds.make_pod({**ASKS, "name": "y", "cpu": 4})
    await until_said(under_test, "y", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
    refused.set()
    await under_test.watch.until_bound("y")
    await until_said(under_test, "x", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
    assert writes(under_test, "/x/binding") == 0


async def test_a_pod_that_is_bound_after_all_stays_where_it_is(under_test: Embedded, other: Other) -> None:
    """Its extender says that the binding failed, as one does whose own answer was lost."""

    async def lost(args: Any) -> object:
        await other._bind(args)
        await under_test.watch.until_bound("x")
        return {"Error": "the answer was lost"}

    other.answers["bind"] = lost
    await Deeds(under_test).make_pod({**ASKS, "cpu": 3})
    await under_test.watch.until_bound("x")
    await Deeds(under_test).make_pod({**ASKS, "name": "y", "cpu": 3})
    await until_said(under_test, "y", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
    assert writes(under_test, "/x/status") == 0


# An extender that is wrong, slow or away


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"Error": "not synced"}, "not synced"),
        ({"NodeNames": ["elsewhere"]}, 'claims a filtered node "elsewhere" which is not found'),
        ({"NodeNames": 7}, "Expected"),
        ([], "Expected"),
        (web.Response(status=503), "code 503"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_and_tried_again(
    under_test: Embedded, other: Other, answer: object, said: str
) -> None:
    async def wrong(_: Any) -> object:
        return answer if other.asked.count("filter") == 1 else await other._all(_)

    other.answers["filter"] = wrong
    await Deeds(under_test).make_pod(ASKS)
    await until_said(under_test, "x", "SchedulerError", said)
    await under_test.watch.until_bound("x")
    assert other.asked.count("filter") == 2
    assert writes(under_test, "/x/status") == 1


async def test_without_any_answer_pods_wait_for_the_extender_and_others_do_not(under_test: Embedded) -> None:
    deeds, other = Deeds(under_test), Other(under_test)
    async with under_test.scheduler(other.port):
        await deeds.make_pod(ASKS)
        await until_said(under_test, "x", "SchedulerError", 'filter": connection refused')
        await deeds.make_pod({"name": "plain"})
        await under_test.watch.until_bound("plain")
        async with other.running():
            await under_test.watch.until_bound("x")


async def test_an_extender_that_hangs_is_not_waited_for(under_test: Embedded) -> None:
    other = Other(under_test)

    async def hangs(_: Any) -> object:
        await asyncio.sleep(PATIENCE)
        return {}

    other.answers["filter"] = hangs
    settings = extenders.Settings(f"http://127.0.0.1:{other.port}{PREFIX}", "filter", timeout=0.05)
    async with other.running(), aiohttp.ClientSession() as session:
        with pytest.raises(extenders.Failed, match=r"no answer within 0\.05 s"):
            await extenders.Extender(settings, session).filter(Pod(), ["a"])


async def test_without_an_extender_the_scheduler_binds_all(under_test: Embedded) -> None:
    async with under_test.scheduler(None):
        await Deeds(under_test).make_pod(ASKS)
        await under_test.watch.until_bound("x")
    assert names.ALLOCATION not in under_test.watch.pods["x"]["metadata"].get("annotations", {})


# A cluster that changes under its feet


async def test_a_pod_that_is_deleted_while_it_is_asked_about_is_forgotten(under_test: Embedded, other: Other) -> None:
    deeds = Deeds(under_test)

    async def deletes(args: Any) -> object:
        if args["Pod"]["metadata"]["name"] == "x":
            await deeds.delete("x")
            await under_test.watch.until("gone", lambda: "x" in under_test.watch.gone_at, PATIENCE)
        return await other._all(args)

    other.answers["filter"] = deletes
    await deeds.make_pod({**ASKS, "cpu": 4})
    await deeds.make_pod({**ASKS, "name": "y", "cpu": 4})
    await under_test.watch.until_bound("y")


async def test_a_pod_that_somebody_else_binds_counts_where_it_is(under_test: Embedded) -> None:
    deeds = Deeds(under_test)
    async with under_test.scheduler(None):
        await deeds.make_pod({**ASKS, "scheduler": "somebody-else", "cpu": 3})
        assert (await under_test.api.bind("x", under_test.nodes["b"])).code == 201
        await under_test.watch.until_bound("x")
        await deeds.make_pod({"name": "y", "cpu": 4})
        await until_said(under_test, "y", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
        await deeds.end("x")
        await under_test.watch.until_bound("y")


async def test_the_same_refusal_is_written_once(under_test: Embedded, other: Other) -> None:
    async def none(args: Any) -> object:
        return {"NodeNames": [], "FailedNodes": dict.fromkeys(args["NodeNames"], "no")}

    other.answers["filter"] = none
    await Deeds(under_test).pod(ASKS)
    for turn in range(3):
        asked = len(other.asked)
        await Deeds(under_test).label({"a": {"turn": str(turn)}})
        await wait.eventually(lambda asked=asked: len(other.asked) > asked, "another try")  # type: ignore[misc]
    assert writes(under_test, "/x/status") == 1
    assert condition(under_test.watch.pods["x"])["lastTransitionTime"]


def seen(uid: str, **more: Any) -> Pod:
    """A pod as a watch shows it."""
    meta, spec = {"uid": uid, **more.pop("metadata", {})}, {"schedulerName": "default-scheduler", **more}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def test_what_a_new_list_does_not_show_is_gone() -> None:
    changes: list[None] = []
    cluster = sinks.Cluster(Queue(), Cache(), lambda: 0.0, lambda: changes.append(None))
    pods, nodes = sinks.Pods(cluster, ["default-scheduler"]), sinks.Nodes(cluster)
    for pod in (seen("waits"), seen("runs", nodeName="n"), seen("stays", nodeName="n")):
        pods.upsert(pod)
    nodes.upsert(msgspec.convert({"metadata": {"name": "n"}}, Node))
    changes.clear()
    pods.relisted({"stays"})
    nodes.relisted(set())
    assert (cluster.queue.pods, cluster.cache.nodes, cluster.cache.taken("n")) == ({}, {}, {"pods": 1})
    assert len(changes) == 2, "a pod left, and a node"


def test_a_pod_that_ends_before_it_is_bound_is_not_tried_any_more() -> None:
    cluster = sinks.Cluster(Queue(), Cache(), lambda: 0.0, lambda: None)
    pods, ends = sinks.Pods(cluster, ["default-scheduler"]), {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods.upsert(seen("x"))
    pods.upsert(seen("x", metadata=ends))
    pods.upsert(seen("y", nodeName="n", metadata=ends))
    assert cluster.queue.pods == {}
    assert cluster.cache.taken("n") == {"pods": 1}, "a bound one stays until it has ended"


@pytest.mark.parametrize("slow", ["/api/v1/pods", "/api/v1/nodes"])
async def test_nothing_is_decided_before_all_pods_and_nodes_are_known(under_test: Embedded, slow: str) -> None:
    deeds, many = Deeds(under_test), [f"z-{number:02}" for number in range(2 * client.FIRST_PAGE)]
    for name in many:
        await deeds.make_pod({"name": name, "cpu": "50m", "scheduler": "somebody-else"})
        assert (await under_test.api.bind(name, under_test.nodes["b"])).code == 201
    await deeds.make_pod({"name": "a", "cpu": "2500m"})  # fits beside the first page
    slowly = Plan({plan.LATENCY: 1.0}, eligible=lambda _, path: path == slow)
    async with FaultProxy(under_test.server.url, slowly) as proxy, under_test.scheduler(None, proxy.url):
        await until_said(under_test, "a", "Unschedulable", "0/2 nodes are available: 2 Insufficient cpu.")
    assert writes(under_test, "/a/status") == 1


async def test_everything_is_bound_once_through_lost_watches_and_refused_requests(under_test: Embedded) -> None:
    faults = Plan(
        {plan.WATCH_CUT: 0.8, plan.WATCH_REPEAT: 0.2, plan.SERVER_ERROR: 0.1, plan.LOST_REPLY: 0.1},
        watch_seconds=(0.01, 0.3),
    )
    deeds, count = Deeds(under_test), 30
    async with FaultProxy(under_test.server.url, faults, seed=3) as proxy, under_test.scheduling(proxy.url):
        for number in range(count):
            words: Object = {"name": f"gpu-{number}", "containers": {"main": 1000}}
            await deeds.make_pod(words if number % 2 else {"name": f"cpu-{number}", "cpu": "100m"})
        await under_test.watch.until("all bound", lambda: len(under_test.watch.bound_at) == count, 60)
        proxy.plan = Plan()
        assert proxy.counts[plan.WATCH_CUT] > 2
    taken: Counter[str] = Counter()
    for pod in under_test.watch.pods.values():
        for shares in json.loads(pod["metadata"].get("annotations", {}).get(names.ALLOCATION, "{}")).values():
            taken[pod_watch.node_of(pod)] += sum(shares.values())
    assert sum(taken.values()) == count // 2 * 1000


# Beginning and end


async def test_it_ends_at_once_whatever_is_under_way(under_test: Embedded) -> None:
    other = Other(under_test)

    async def hangs(_: Any) -> object:
        await asyncio.sleep(PATIENCE)
        return {}

    other.answers["bind"] = hangs
    async with other.running(), asyncio.timeout(PATIENCE / 2), under_test.scheduler(other.port):
        await Deeds(under_test).make_pod(ASKS)
        await wait.eventually(lambda: "bind" in other.asked, "the binding")


async def test_a_bug_in_it_ends_the_block(under_test: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(placing, "place", broken)
    await Deeds(under_test).make_pod({"name": "x"})
    with pytest.raises(ExceptionGroup) as caught:
        async with under_test.scheduler(None):
            await asyncio.sleep(PATIENCE)
    assert caught.group_contains(RuntimeError, match="a bug")


async def test_an_error_of_the_block_stays_what_it_is(under_test: Embedded) -> None:
    with pytest.raises(KeyError):
        async with under_test.scheduler(None):
            raise KeyError


def test_an_extender_is_asked_about_whoever_names_what_it_manages() -> None:
    def interested(**resources: Any) -> bool:
        given = {"spec": {"initContainers": [{"name": "a"}, {"name": "b", "resources": resources}]}}
        return extenders.Extender(extenders.Settings("u"), None).interested(msgspec.convert(given, Pod))  # type: ignore[arg-type]

    assert interested(limits={names.GPU_MEM: "0"})
    assert interested(requests={names.GPU_COUNT: "1"})
    assert not interested(limits={"cpu": "1"})
    assert not interested()
