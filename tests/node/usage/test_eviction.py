"""Pods that use more than they asked for are evicted one by one, if that is wanted and allowed."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpushare.kube import client
from gpushare.node.usage.eviction import RIGHT, Evictor
from tests.node.usage.over import Scene, use
from tests.support import scripted_api
from tests.support.scripted_api import Server, answer, cut, refuse

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
FORBIDDEN = (
    'pods "a" is forbidden: User "system:serviceaccount:kube-system:gpushare-node" cannot create resource '
    '"pods/eviction" in API group "" in the namespace "ml"'
)


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[Server, client.Api]]:
    async with scripted_api.serve_api() as made:
        for pod in "abc":
            made[0].on(_path(pod), answer({"kind": "Status"}, 201))
        yield made


Cluster = tuple[Server, client.Api]


def _path(pod: str) -> str:
    return f"POST /api/v1/namespaces/ml/pods/{pod}/eviction"


def _evicted(cluster: Cluster) -> list[str]:
    return [asked.path.split("/")[-2] for asked in cluster[0].asked]


def _scene(cluster: Cluster, *pods: str, **more: Any) -> tuple[Scene, Evictor]:
    scene = Scene()
    for pod in pods:
        scene.runs(pod, **more)
    return scene, Evictor("gpu-a", cluster[1], scene.pods, scene.over, clock=lambda: scene.now)


async def test_the_largest_over_user_goes_first_and_its_event_says_why(cluster: Cluster) -> None:
    scene, evictor = _scene(cluster, "a", "b", "c")
    scene.lasts(use("a", 1000, 2000), use("b", 1000, 3000), use("c", 1000, 100))
    await evictor.evict()
    await evictor.evict()
    (asked,) = cluster[0].asked
    assert asked.path == "/api/v1/namespaces/ml/pods/b/eviction"
    assert asked.body == {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b", "namespace": "ml"},
        "deleteOptions": {"preconditions": {"uid": "b-uid"}},
    }  # fmt: skip
    assert scene.book.take("GPUOverUseEvicted") == [
        ("Warning", "GPUOverUseEvicted", "ml/b",
         "evicted: container main used 3000 MiB of GPU 0 on gpu-a, and asked for 1000 MiB")
    ]  # fmt: skip
    assert scene.over.evictions == 1


async def test_one_pod_of_a_gpu_goes_in_a_minute(cluster: Cluster) -> None:
    scene, evictor = _scene(cluster, "a", "b")
    scene.lasts(use("a", 1000, 2000), use("b", 1000, 3000))
    await evictor.evict()
    scene.runs("b", deletionTimestamp="2026-11-15T12:00:00Z")
    for later in (5, 30, 59):
        scene.look(61 + later, use("a", 1000, 2000), use("b", 1000, 3000))
        await evictor.evict()
    assert _evicted(cluster) == ["b"]
    scene.look(122, use("a", 1000, 2000))
    await evictor.evict()
    assert _evicted(cluster) == ["b", "a"]


async def test_a_disruption_budget_keeps_a_pod_which_is_said_once_and_tried_every_minute(cluster: Cluster) -> None:
    cluster[0].on(_path("a"), refuse(429, "TooManyRequests", BUDGET), refuse(429, "TooManyRequests", BUDGET),
                  answer({}, 201))  # fmt: skip
    scene, evictor = _scene(cluster, "a")
    told = []
    for at in range(0, 200, 5):
        scene.look(at, use("a", 1000, 2000))
        await evictor.evict()
        told += [(at, reason) for _, reason, *_ in scene.book.take()]
    assert told == [(65, "GPUOverUse"), (65, "GPUOverUseNotEvicted"), (185, "GPUOverUseEvicted")]
    assert _evicted(cluster) == ["a", "a", "a"]


async def test_a_pod_that_a_budget_keeps_does_not_protect_the_next_one(cluster: Cluster) -> None:
    cluster[0].on(_path("b"), refuse(429, "TooManyRequests", BUDGET))
    scene, evictor = _scene(cluster, "a", "b")
    scene.lasts(use("a", 1000, 2000), use("b", 1000, 3000))
    await evictor.evict()
    assert _evicted(cluster) == ["b", "a"]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"priorityClassName": "system-node-critical"}, id="a class of the system"),
        pytest.param({"priority": 2_000_000_000}, id="the priority of such a class"),
        pytest.param({"deletionTimestamp": "2026-11-15T12:00:00Z"}, id="it ends already"),
        pytest.param({"annotations": {"kubernetes.io/config.mirror": "hash"}}, id="a static pod"),
    ],
)
async def test_some_pods_are_never_evicted(cluster: Cluster, more: dict[str, Any]) -> None:
    scene, evictor = _scene(cluster, "a", **more)
    scene.lasts(use("a", 1000, 2000), use("unknown", 1000, 5000))
    await evictor.evict()
    assert _evicted(cluster) == []
    assert len(scene.over.current) == 2


async def test_nobody_is_evicted_while_its_use_is_not_known(cluster: Cluster) -> None:
    scene, evictor = _scene(cluster, "a")
    scene.lasts(use("a", 1000, 2000))
    scene.look(70, use("a", 1000, None))
    await evictor.evict()
    assert (len(scene.over.current), _evicted(cluster)) == (1, [])


@pytest.mark.parametrize("code", [404, 409])
async def test_a_pod_that_is_gone_is_not_spoken_of(cluster: Cluster, code: int) -> None:
    cluster[0].on(_path("a"), refuse(code))
    scene, evictor = _scene(cluster, "a")
    scene.lasts(use("a", 1000, 2000))
    scene.book.take()
    await evictor.evict()
    assert (scene.book.events, scene.over.evictions) == ([], 0)


async def test_a_missing_right_is_logged_with_the_way_to_it(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster[0].on(_path("a"), refuse(403, "Forbidden", FORBIDDEN))
    scene, evictor = _scene(cluster, "a")
    scene.lasts(use("a", 1000, 2000))
    await evictor.evict()
    assert RIGHT in str(caplog.records[-1].__dict__)
    assert scene.over.evictions == 0


@pytest.mark.parametrize("fails", [cut, refuse(500), refuse(429, "TooManyRequests", "slow down")])
async def test_a_cluster_that_fails_is_asked_again_a_minute_later(
    cluster: Cluster, fails: scripted_api.Handler
) -> None:
    cluster[0].on(_path("a"), fails, answer({}, 201))
    scene, evictor = _scene(cluster, "a")
    scene.lasts(use("a", 1000, 2000))
    scene.book.take()
    await evictor.evict()
    assert scene.book.events == []
    scene.look(122, use("a", 1000, 2000))
    await evictor.evict()
    assert scene.over.evictions == 1


@pytest.mark.parametrize("fails", [cut, refuse(500), refuse(504)])
async def test_if_a_pod_may_have_been_evicted_no_other_one_of_its_gpu_goes_in_that_minute(
    cluster: Cluster, fails: scripted_api.Handler
) -> None:
    cluster[0].on(_path("b"), fails)
    scene, evictor = _scene(cluster, "a", "b")
    scene.lasts(use("a", 1000, 2000), use("b", 1000, 3000))
    await evictor.evict()
    assert _evicted(cluster) == ["b"]
    scene.look(122, use("a", 1000, 2000))
    await evictor.evict()
    assert _evicted(cluster) == ["b", "a"]


async def test_one_sample_is_not_enough_to_evict_however_long_the_driver_is_silent_after_it(cluster: Cluster) -> None:
    scene, evictor = _scene(cluster, "a")
    scene.look(0, use("a", 1000, 2000))
    for later in (30, 59, 61, 90):
        scene.look(later, use("a", 1000, 2000), again=True)
        await evictor.evict()
    assert (scene.over.current, _evicted(cluster)) == ((), [])


async def test_figures_that_are_shown_again_evict_nobody(cluster: Cluster) -> None:
    scene, evictor = _scene(cluster, "a")
    scene.lasts(use("a", 1000, 2000))
    scene.look(66, use("a", 1000, 2000), again=True)
    await evictor.evict()
    assert (len(scene.over.current), _evicted(cluster)) == (1, [])


async def test_a_pod_on_two_gpus_waits_for_the_minute_of_both(cluster: Cluster) -> None:
    scene, evictor = _scene(cluster, "a", "b")
    on_both = (use("b", 1000, 3000), use("a", 1000, 2000)), (use("a", 1000, 2000),)
    scene.look_at(0, *on_both)
    scene.look_at(61, *on_both)
    await evictor.evict()
    assert _evicted(cluster) == ["b"]
    scene.look_at(122, *on_both[1:], *on_both[1:])
    await evictor.evict()
    assert _evicted(cluster) == ["b", "a"]
