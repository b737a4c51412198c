"""Somebody who may list the pods of one namespace never receives the name of a pod of another: not one byte of it."""

import gzip
import json
import re
from collections.abc import AsyncIterator

import pytest

from gpushare.core.facts import names
from gpushare.dashboard.live.history import History
from gpushare.dashboard.live.past import Past
from gpushare.dashboard.live.ticks import Ticks
from gpushare.dashboard.pages import NOT_JSON, Pages
from gpushare.dashboard.reading import Reading
from gpushare.dashboard.server.trials import Trials
from gpushare.kube import client
from tests.dashboard.live import world as lives
from tests.dashboard.live.world import gpunode, node, pod
from tests.dashboard.server import world as worlds
from tests.dashboard.server.world import Cluster, World
from tests.support import scripted_api
from tests.support.scripted_api import answer

PAGES = (
    "api/me", "api/snapshot", "api/node/a", "api/gpu/a/0", "api/gpu/a/1?range=48h", "api/waiting",
    "api/why/ours/our-waiting", "api/why/ours/our-running", "api/history", "api/health", "api/search?q=the",
    "api/search?q=our", "api/search?q=a", "api/search?q=theirs%2F",
)  # fmt: skip
HIDDEN = ("api/why/theirs/their-waiting", "api/why/theirs/their-running", "api/why/theirs/nothing", "api/why/no/no")
FOREIGN = re.compile(rb"their")
WHAT_IF = {"yaml": json.dumps({
    "kind": "Pod", "metadata": {"name": "more"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {names.GPU_MEM: 5000}}}]},
}), "replicas": 3}  # fmt: skip


def cluster() -> lives.World:
    """Two GPUs, on each a pod of ours and one of theirs, which uses too much; and two pods that wait."""
    made = lives.World()
    made.put_node(node(8000, 8000, name="a"))
    for i in range(2):
        for namespace, name in (("ours", "our-running"), ("theirs", "their-running")):
            one = f"{name}-{i}" if i else name
            made.put_pod(
                pod(3000, name=one, uid=one, namespace=namespace, on="a", gpus=[f"GPU-a-{i}"], phase="Running")
            )
    for namespace, name in (("ours", "our-waiting"), ("theirs", "their-waiting")):
        made.put_pod(pod(7000, name=name, uid=name, namespace=namespace))
    used = {"uid": "their-running", "namespace": "theirs", "pod": "their-running", "container": "their-main",
            "grantedMiB": 3000, "usedMiB": 4000}  # fmt: skip
    made.put_gpunode(gpunode({"usedMiB": 4000, "containers": [used]}, {"usedMiB": 1}, name="a"))
    return made


@pytest.fixture
async def both() -> AsyncIterator[tuple[World, Cluster]]:
    kept, history = cluster(), History()
    ticks = Ticks(kept.live, history, epoch="e", now=kept.clock, clock=kept.clock)
    async with scripted_api.serve() as api_server, client.connect(api_server.access()) as api:
        about = {"kind": "Pod", "namespace": "theirs", "name": "their-running"}
        event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "OverUse", "type": "Warning",
                 "message": "theirs/their-running uses too much", "source": {"component": names.COMPONENT}}  # fmt: skip
        listed = {"metadata": {"resourceVersion": "1"}, "items": [event]}
        for path in ("events", "namespaces/ours/events"):
            api_server.on(f"GET /api/v1/{path}", answer(listed))
        trials = Trials()
        pages = Pages(kept.live, history, Past(history, None, kept.clock), Reading(api), trials, kept.clock)
        async with worlds.cluster(behind_proxy=True, shown=pages.table()) as (world, rights):
            ticks.subscribe(world.ticks.frames.append)
            world.ticks.snapshot_body = ticks.snapshot_body  # type: ignore[method-assign]
            ticks.tick()
            kept.clock.time += 15.0
            ticks.tick()
            yield world, rights
        trials.close()


async def everything(world: World) -> dict[str, tuple[int, bytes]]:
    """Status, headers and body of every page."""
    found = {}
    bearer = {"Authorization": "Bearer token"}
    for path in (*PAGES, *HIDDEN):
        response = await world.get(path, bearer)
        found[path] = response.status, str(response.raw_headers).encode() + await response.read()
    tried = await world.post("api/whatif", json.dumps(WHAT_IF).encode(), bearer)
    found["whatif"] = tried.status, await tried.read()
    return found


async def test_a_user_of_one_namespace_gets_no_foreign_name(both: tuple[World, Cluster]) -> None:
    world, _ = both
    found = await everything(world)
    for path in PAGES:
        status, body = found[path]
        assert status == 200, (path, body)
        assert not FOREIGN.search(body), (path, body)
    assert found["whatif"][0] == 200
    assert not FOREIGN.search(found["whatif"][1])
    assert b"our-running" in found["api/node/a"][1]
    assert b'"hidden":1' in found["api/waiting"][1]
    assert not any(FOREIGN.search(frame) for frame in world.ticks.frames)


async def test_a_pod_that_must_not_be_seen_is_as_one_that_is_not_there(both: tuple[World, Cluster]) -> None:
    found = await everything(both[0])
    answers = {
        found[path][1].rpartition(b"{")[2].replace(path.rpartition("/")[2].encode(), b"POD") for path in HIDDEN[:3]
    }
    assert len(answers) == 1
    assert {found[path][0] for path in HIDDEN} == {404}


async def test_who_may_list_all_pods_gets_all_names(both: tuple[World, Cluster]) -> None:
    world, rights = both
    rights.may |= {("pods", "")}
    found = await everything(world)
    for path in ("api/node/a", "api/gpu/a/0", "api/waiting", "api/why/theirs/their-waiting", "api/search?q=the"):
        assert found[path][0] == 200
        assert FOREIGN.search(found[path][1]), path
    assert not FOREIGN.search(found["api/snapshot"][1])  # it is the same for everybody
    assert not FOREIGN.search(gzip.decompress(world.ticks.snapshot_body()[1]))


async def test_a_question_that_is_nested_too_deeply_is_refused_as_one_that_cannot_be_read(
    both: tuple[World, Cluster],
) -> None:
    body = b'{"yaml": "", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    response = await both[0].post("api/whatif", body, {"Authorization": "Bearer token"})
    assert response.status == 400
    assert (await response.json())["error"] == NOT_JSON
