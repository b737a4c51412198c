"""Pods leave bad GPUs one by one, if that is wanted, allowed, and of use to them."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gpushare.core.facts.scoring.settings import NEUTRAL, Settings
from gpushare.core.scheduling.life import Life
from gpushare.core.scheduling.reach import Reach
from gpushare.extender.metrics import Metrics
from gpushare.extender.policy.rescheduler import RIGHT, Rescheduler
from gpushare.kube import client
from tests.extender.policy.book import Book
from tests.support import scripted_api
from tests.support.builders import api_pod, bound, facts, ledger, node_state, pod
from tests.support.scripted_api import Server, answer, cut, refuse

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
SICK, WELL = facts(8, name="a", unhealthy=[0]), facts(8, name="a")


class Scene:
    """One sick node `a` and one well node `b`, each with one GPU of 8. Time passes when the test says so."""

    def __init__(self, server: Server, api: client.Api) -> None:
        self.server, self.now, self.not_ready = server, 0.0, ""
        self.book, self.over_used = Book(), dict[str, dict[str, tuple[str, ...]]]()
        self.allowed: set[str] | None = None
        made = ledger(SICK, facts(8, name="b"))
        self.metrics = Metrics(made)
        reach = Reach(lambda pod: self.allowed, lambda pod, node: True)
        self.life = Life(made, policy="binpack", reach=reach)
        self.life.apply(Settings(reschedules=True))
        self.rescheduler = Rescheduler(
            api, self.life, self.book, self.metrics,  # type: ignore[arg-type]
            unit=None, over_users=lambda node: self.over_used.get(node, {}), not_ready=lambda: self.not_ready,
            clock=lambda: self.now,
        )  # fmt: skip

    def runs(self, name: str, *units: int, owner: str = "rs", **more: Any) -> str:
        """A pod on the sick node, which can be read and evicted; its uid."""
        asked = units or (2,)
        self.life.observe(bound(pod(*asked, name=name, owner=owner, **more), WELL, ((0,),) * len(asked)), 0.0)
        read = msgspec.to_builtins(api_pod(*asked, name=name, owner=owner, on="a", **more))
        self.server.on(f"GET /api/v1/namespaces/default/pods/{name}", answer(read))
        self.server.on(_path(name), answer({"kind": "Status"}, 201))
        return f"uid-{name}"

    async def after(self, seconds: float) -> list[str]:
        """Looks every five seconds; the pods whose eviction was asked for meanwhile."""
        before = len(self.server.asked)
        for _ in range(int(seconds // 5)):
            self.now += 5
            await self.rescheduler.look()
        asked = [one for one in self.server.asked[before:] if one.path.endswith("/eviction")]
        return [one.path.split("/")[-2] for one in asked]

    def moved(self, reason: str) -> float:
        return self.metrics.registry.get_sample_value("gpushare_rescheduled_total", {"reason": reason}) or 0.0


def _path(name: str) -> str:
    return f"POST /api/v1/namespaces/default/pods/{name}/eviction"


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with scripted_api.serve_api() as (server, api):
        yield Scene(server, api)


async def test_a_pod_on_an_unhealthy_gpu_goes_and_its_event_says_why_and_where_room_is(scene: Scene) -> None:
    uid = scene.runs("sick")
    assert await scene.after(60) == []
    assert await scene.after(5) == ["sick"]
    asked = scene.server.asked[-1].body
    assert asked["deleteOptions"] == {"preconditions": {"uid": uid}}
    assert scene.book.take() == [
        ("Pod/sick", "Warning", "GPURescheduled", "evicted: GPU 0 of a is unhealthy; b has room for it")
    ]
    assert scene.moved("unhealthy") == 1


async def test_there_is_one_eviction_a_minute_in_all_and_each_pod_goes_once(scene: Scene) -> None:
    for name in ("p1", "p2", "p3"):
        scene.runs(name)
    assert await scene.after(65) == ["p1"]
    assert await scene.after(55) == []
    assert await scene.after(60) == ["p2"]
    assert await scene.after(60) == ["p3"]
    assert await scene.after(300) == []


async def test_the_neighbour_of_a_pod_that_uses_too_much_goes(scene: Scene) -> None:
    scene.life.ledger.set_node(WELL)
    greedy, _ = scene.runs("greedy", 1), scene.runs("near", 2)
    scene.over_used = {"a": {"GPU-a-0": (greedy,)}}
    assert await scene.after(120) == ["near"]
    ((_, _, _, text),) = scene.book.take()
    assert text == "evicted: another pod uses more of GPU 0 of a than it asked for; b has room for it"
    assert scene.moved("overuse") == 1


async def test_a_new_pod_of_the_same_controller_is_not_moved_off_an_over_used_gpu_again(scene: Scene) -> None:
    scene.life.ledger.set_node(WELL)
    greedy, first = scene.runs("greedy", 1), scene.runs("first", 2)
    scene.over_used = {"a": {"GPU-a-0": (greedy,)}}
    assert await scene.after(65) == ["first"]
    scene.life.forget(first)
    scene.runs("second", 2)
    assert await scene.after(1800) == []
    assert await scene.after(1860) == ["second"]


@pytest.mark.parametrize("why", ["not permitted", "not ready"])
async def test_nothing_goes_while_it_is_not_permitted_or_the_view_is_old(scene: Scene, why: str) -> None:
    scene.runs("sick")
    if why == "not permitted":
        scene.life.apply(NEUTRAL)
    else:
        scene.not_ready = "no watch"
    assert await scene.after(300) == []
    assert scene.server.asked == []
    scene.life.apply(Settings(reschedules=True))
    scene.not_ready = ""
    assert await scene.after(60) == []
    assert await scene.after(5) == ["sick"]


async def test_without_another_place_it_stays_until_there_is_one(scene: Scene) -> None:
    scene.runs("sick")
    full = bound(pod(8, name="full"), facts(8, name="b"), ((0,),))
    scene.life.observe(full, 0.0)
    assert await scene.after(300) == []
    scene.life.forget(full.uid)
    assert await scene.after(65) == ["sick"]


@pytest.mark.parametrize("comes", [True, False])
async def test_a_place_is_promised_to_one_pod_until_its_successor_had_time_to_come(scene: Scene, comes: bool) -> None:
    """A pod of a StatefulSet may take minutes to end, and its successor comes only then."""
    scene.life.observe(bound(pod(5, name="half"), facts(8, name="b"), ((0,),)), 0.0)
    ends, _ = scene.runs("p1"), scene.runs("p2")
    assert await scene.after(65) == ["p1"]
    assert await scene.after(500) == []
    scene.life.forget(ends)
    if comes:
        scene.life.observe(bound(pod(2, name="new"), facts(8, name="b"), ((0,),)), 0.0)
    assert await scene.after(55) == []
    assert await scene.after(300) == ([] if comes else ["p2"])


async def test_a_pod_that_never_ends_does_not_keep_a_place_for_ever(scene: Scene) -> None:
    scene.life.observe(bound(pod(5, name="half"), facts(8, name="b"), ((0,),)), 0.0)
    for name in ("p1", "p2"):
        scene.runs(name)
    assert await scene.after(65) == ["p1"]
    scene.life.observe(bound(pod(2, name="p1", owner="rs", terminating=True), WELL, ((0,),)), 0.0)
    assert await scene.after(590) == []
    assert await scene.after(120) == ["p2"]


async def test_which_nodes_it_may_use_is_read_once_from_the_pod(scene: Scene) -> None:
    scene.runs("sick", only="nowhere")
    assert await scene.after(300) == []
    assert len(scene.server.asked) == 1


async def test_a_pod_without_a_place_does_not_hold_up_the_others(scene: Scene) -> None:
    scene.life.ledger.set_node(facts(8, name="b"))
    scene.life.observe(bound(pod(5, name="half"), facts(8, name="b"), ((0,),)), 0.0)
    scene.runs("large", 4, priority=10)
    scene.runs("small", 2)
    assert await scene.after(70) == ["small"]


async def test_a_disruption_budget_keeps_a_pod_which_is_said_once_and_tried_every_minute(scene: Scene) -> None:
    scene.runs("kept", priority=10)
    scene.runs("other")
    scene.server.on(_path("kept"), refuse(429, "TooManyRequests", BUDGET))
    assert await scene.after(70) == ["kept", "other"]
    assert await scene.after(60) == ["kept"]
    told = [event for event in scene.book.take() if event[0] == "Pod/kept"]
    text = (
        "not evicted, although GPU 0 of a is unhealthy: a disruption budget keeps it; gpushare tries again every minute"
    )
    assert told == [("Pod/kept", "Warning", "GPUNotRescheduled", text)]


async def test_without_the_right_one_line_says_what_to_do(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("p1", "p2"):
        scene.runs(name)
        words = f'pods "{name}" is forbidden: User "u" cannot create resource "pods/eviction" in API group ""'
        scene.server.on(_path(name), refuse(403, "Forbidden", words))
    assert len(await scene.after(300)) == 4  # once a minute, for either
    (line,) = [record for record in caplog.records if "cannot be evicted" in record.getMessage()]
    assert RIGHT in str(line.__dict__)
    assert scene.book.events == []


@pytest.mark.parametrize("lost", [cut, refuse(500), refuse(504)])
async def test_a_lost_answer_counts_as_an_eviction(scene: Scene, lost: Any) -> None:
    for name in ("p1", "p2"):
        scene.runs(name)
        scene.server.on(_path(name), lost)
    assert await scene.after(65) == ["p1"]
    assert await scene.after(55) == []
    assert scene.moved("unhealthy") == 0


async def test_a_pod_that_is_gone_or_replaced_is_passed_over(scene: Scene) -> None:
    for name in ("deleted", "replaced"):
        scene.runs(name, priority=10)
    scene.runs("late", priority=5)
    scene.runs("there")
    other = msgspec.to_builtins(api_pod(2, name="replaced", uid="another"))
    scene.server.on("GET /api/v1/namespaces/default/pods/deleted", refuse(404))
    scene.server.on("GET /api/v1/namespaces/default/pods/replaced", answer(other))
    scene.server.on(_path("late"), refuse(409))
    assert await scene.after(75) == ["late", "there"]


async def test_what_cannot_be_read_is_tried_again(scene: Scene) -> None:
    scene.runs("sick")
    read = msgspec.to_builtins(api_pod(2, name="sick", owner="rs", on="a"))
    scene.server.on("GET /api/v1/namespaces/default/pods/sick", cut, refuse(500), answer(read))
    assert await scene.after(75) == ["sick"]


async def test_few_pods_are_read_at_once(scene: Scene) -> None:
    for i in range(50):
        scene.runs(f"p{i:02}", 1, owner="rs")
    scene.allowed = set()
    await scene.after(60)
    assert scene.server.asked == []
    await scene.after(5)
    assert len(scene.server.asked) <= 5


async def test_a_pod_that_ends_while_it_is_read_stays_alone(scene: Scene) -> None:
    uid = scene.runs("sick")
    read = msgspec.to_builtins(api_pod(2, name="sick", owner="rs", on="a"))

    async def ends_meanwhile(asked: Any) -> Any:
        scene.life.forget(uid)
        return await answer(read)(asked)

    scene.server.on("GET /api/v1/namespaces/default/pods/sick", ends_meanwhile)
    assert await scene.after(120) == []
    assert node_state(scene.life.ledger, "a").holding(uid) is None
