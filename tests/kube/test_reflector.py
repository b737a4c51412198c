"""The picture stays true, whatever the connection does."""

import asyncio
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpushare.core.facts import objects
from gpushare.kube import client, resources
from gpushare.kube.reflector import REMEMBERED, Reflector
from tests.support.scripted_api import (
    FakeTime,
    Server,
    bookmark,
    cut,
    event,
    hang,
    page,
    pod,
    refuse,
    serve,
    watch,
)
from tests.support.wait import eventually

PODS = "/api/v1/pods"
LIST, WATCH = f"GET {PODS}", f"WATCH {PODS}"
REVISION = "GET /api/v1/namespaces/kube-system/pods"
OPEN = watch(then="hang")
FAR = page([], "1000000")  # a revision that no test reaches
GONE = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old", "status": "Failure"}}


@dataclass
class Picture:
    """A sink that writes down what it is told."""

    pods: dict[str, objects.Pod] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def upsert(self, item: objects.Pod) -> None:
        self.pods[item.metadata.uid] = item
        self.told.append(f"{item.metadata.name}@{item.metadata.resource_version}")

    def remove(self, item: objects.Pod) -> None:
        del self.pods[item.metadata.uid]
        self.told.append(f"-{item.metadata.name}")

    def relisted(self, kept: Set[str]) -> None:
        self.pods = {uid: item for uid, item in self.pods.items() if uid in kept}
        self.told.append(f"={len(kept)}")

    def names(self) -> list[str]:
        return sorted(item.metadata.name for item in self.pods.values())


@dataclass
class Stage:
    server: Server
    picture: Picture
    time: FakeTime
    reflector: Reflector[objects.Pod]

    async def told(self, *expected: str) -> None:
        await eventually(lambda: len(self.picture.told) >= len(expected))
        assert self.picture.told == list(expected)

    def watched_from(self) -> list[str]:
        return [asked.query["resourceVersion"] for asked in self.server.asked if asked.query.get("watch")]

    async def watching(self, times: int) -> None:
        await eventually(lambda: self.reflector.watches >= times and self.reflector._lost is None)


@asynccontextmanager
async def stage(
    listed: Any, *watches: Any, revisions: Sequence[Any] = (FAR,), real_time: bool = False, start: bool = True,
    timeout: float = 5.0, **more: Any,
) -> AsyncIterator[Stage]:  # fmt: skip
    async with serve() as server, client.connect(server.access(), timeout=timeout) as connection:
        server.on(LIST, *(listed if isinstance(listed, list) else [listed]))
        server.on(WATCH, *watches)
        server.on(REVISION, *revisions)
        time, picture = FakeTime(), Picture()
        if not real_time:
            more |= {"clock": time.clock, "sleep": time.sleep, "chance": lambda: 0.5}
        reflector = Reflector(
            connection, resources.PODS, objects.Pod, picture, key=lambda item: item.metadata.uid, **more
        )
        running = asyncio.ensure_future(reflector.run() if start else asyncio.sleep(0))
        try:
            yield Stage(server, picture, time, reflector)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def test_a_list_is_followed_by_a_watch_from_there() -> None:
    added = watch(
        event("ADDED", pod("b", 6)), event("MODIFIED", pod("a", 7)), event("DELETED", pod("b", 8)), then="hang"
    )
    async with stage(page([pod("a", 3)], "5"), added) as on:
        await on.told("a@3", "=1", "b@6", "a@7", "-b")
        assert on.picture.names() == ["a"]
        asked = on.server.asked[1].query
        assert (asked["resourceVersion"], asked["allowWatchBookmarks"]) == ("5", "true")
        assert asked["timeoutSeconds"] == "450"  # between 5 and 10 minutes, by chance
        assert (on.reflector.lists, on.reflector.watches) == (1, 1)


async def test_only_a_complete_list_counts_as_synced() -> None:
    async with stage([page([pod("a", 3)], "5", "more"), hang], OPEN) as on:
        await eventually(lambda: on.picture.told == ["a@3"])
        assert not on.reflector.synced
    async with stage([page([pod("a", 3)], "5", "more"), page([pod("b", 4)], "5")], OPEN) as on:
        await asyncio.wait_for(on.reflector.wait_synced(), 5)
        assert on.reflector.synced
        assert on.picture.told == ["a@3", "b@4", "=2"]


async def test_a_410_in_the_middle_of_pages_starts_the_list_over() -> None:
    pages = [page([pod("a", 3)], "5", "more"), refuse(410, "Expired"), page([pod("b", 8)], "9")]
    async with stage(pages, OPEN) as on:
        await on.told("a@3", "b@8", "=1")
        assert on.picture.names() == ["b"]
        assert "continue" not in on.server.asked[2].query
        await on.watching(1)
        assert on.watched_from() == ["9"]


async def test_a_watch_that_ends_is_opened_again_at_once_from_where_it_stopped() -> None:
    async with stage(page([], "5"), watch(event("ADDED", pod("a", 6))), watch(bookmark(9)), OPEN) as on:
        await on.watching(3)
        assert on.watched_from() == ["5", "6", "9"]
        assert on.time.slept == []
        assert on.reflector.lists == 1


async def test_a_watch_that_ends_at_once_and_empty_is_not_tried_again_without_a_pause() -> None:
    repeated = watch(event("ADDED", pod("a", 3)), bookmark(5))
    async with stage(page([pod("a", 3)], "5"), watch(), repeated, watch(), OPEN) as on:
        await on.watching(4)
        assert len(on.time.slept) == 3
        assert on.watched_from() == ["5", "5", "5", "5"]


@pytest.mark.parametrize("gone", [watch(GONE), refuse(410, "Expired")])
async def test_a_410_lists_again_and_forgets_what_is_gone(gone: Any) -> None:
    lists = [page([pod("a", 3), pod("b", 4)], "5"), page([pod("b", 4), pod("c", 7)], "8")]
    async with stage(lists, gone, OPEN) as on:
        await on.watching(2)
        assert on.picture.names() == ["b", "c"]
        assert on.watched_from() == ["5", "8"]
        assert on.reflector.lists == 2


@pytest.mark.parametrize(
    "failure", [watch(then="cut"), refuse(500), refuse(403, "Forbidden"), watch(bookmark(5), then="cut")]
)
async def test_other_failures_watch_again_without_a_list(failure: Any) -> None:
    async with stage(page([], "5"), failure, OPEN) as on:
        await on.watching(2)
        assert on.watched_from() == ["5", "5"]
        assert on.reflector.lists == 1
        assert on.time.slept == [0.1]


async def test_a_version_from_before_a_restore_lists_again() -> None:
    ahead = refuse(504, "Timeout", "Too large resource version: 5, current: 3")
    async with stage([page([pod("a", 4)], "5"), page([pod("a", 2)], "3")], ahead, OPEN) as on:
        await on.told("a@4", "=1", "a@2", "=1")
        await on.watching(2)
        assert on.watched_from() == ["5", "3"]


async def test_delays_grow_to_ten_seconds_and_start_anew_after_an_event() -> None:
    read = asyncio.Event()

    async def works(request: Any) -> Any:
        response = await watch(event("ADDED", pod("a", 6)))(request)
        await read.wait()
        return await cut(request) if response else response

    fails = [refuse(500)] * 9
    async with stage(page([], "5"), *fails, works, refuse(500), OPEN) as on:
        await on.told("=0", "a@6")
        read.set()
        await on.watching(12)
        assert on.time.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 0.1, 0.2]


async def test_failing_lists_are_tried_again_with_growing_delays() -> None:
    # Two cuts are one failure: a lost GET is sent once more by the HTTP client itself.
    async with stage([cut, cut, refuse(503), page([pod("a", 3)], "5")], OPEN) as on:
        await on.told("a@3", "=1")
        assert on.time.slept == [0.1, 0.2]
        assert on.reflector.lists == 3


async def test_pages_that_do_not_come_through_are_asked_for_in_smaller_pieces() -> None:
    # aiohttp itself asks once more when a connection is cut
    async with stage([*[cut] * 8, page([pod("a", 3)], "5")], OPEN) as on:
        await on.told("a@3", "=1")
        limits = [int(asked.query["limit"]) for asked in on.server.asked if "limit" in asked.query]
        assert limits[-1] < limits[0]


async def test_the_wish_of_an_overloaded_server_is_granted_within_a_minute() -> None:
    busy = [refuse(429, headers={"Retry-After": wait}) for wait in ("7", "3600")]
    async with stage([*busy, page([], "5")], OPEN) as on:
        await on.watching(1)
        assert on.time.slept == [7.0, 60.0]


async def test_a_failure_is_over_as_soon_as_pages_come() -> None:
    """A long first list after a hiccup must not look like an API server that cannot be asked."""
    async with stage([refuse(503), page([pod("a", 1)], "5", "more"), hang], OPEN) as on:
        await on.told("a@1")
        assert len(on.time.slept) == 1  # after the 503
        assert (on.reflector.synced, on.reflector.failure) == (False, None)


async def test_touch_and_its_loss_are_measured() -> None:
    gate = asyncio.Event()

    async def gated(_: float) -> None:
        await gate.wait()

    released = asyncio.Event()

    async def cut_later(request: Any) -> Any:
        response = await watch()(request)
        await released.wait()
        return await cut(request) if response else response

    clock = FakeTime()
    async with stage(page([], "5"), cut_later, OPEN, sleep=gated, clock=clock.clock, real_time=True) as on:
        clock.now += 3
        assert on.reflector.disconnected_for() == 3.0
        await on.watching(1)
        clock.now += 20
        assert (on.reflector.age(), on.reflector.disconnected_for()) == (20.0, 0.0)
        released.set()
        await eventually(lambda: str(on.reflector.failure) == "the connection was lost")
        clock.now += 4
        assert (on.reflector.age(), on.reflector.disconnected_for()) == (24.0, 4.0)
        gate.set()
        await on.watching(2)
        assert (on.reflector.age(), on.reflector.disconnected_for(), on.reflector.failure) == (0.0, 0.0, None)


async def test_a_repeated_or_older_event_changes_nothing() -> None:
    late = watch(
        event("MODIFIED", pod("a", 7)),
        event("MODIFIED", pod("a", 7)),
        event("MODIFIED", pod("a", 6)),
        event("ADDED", pod("b", 4)),  # older than the list, which did not have it
        event("MODIFIED", pod("a", 8)),
        then="hang",
    )
    async with stage(page([pod("a", 3)], "5"), late) as on:
        await on.told("a@3", "=1", "a@7", "a@8")


async def test_an_event_delayed_past_another_objects_event_is_still_news() -> None:
    mixed = watch(event("ADDED", pod("b", 9)), event("MODIFIED", pod("a", 7)), then="cut")
    async with stage(page([pod("a", 3)], "5"), mixed, OPEN) as on:
        await on.told("a@3", "=1", "b@9", "a@7")
        await on.watching(2)
        assert on.watched_from() == ["5", "9"]


async def test_a_late_event_does_not_bring_a_deleted_pod_back() -> None:
    late = watch(
        event("DELETED", pod("a", 7)),
        event("MODIFIED", pod("a", 6)),
        event("DELETED", pod("b", 9)),  # never seen alive
        event("ADDED", pod("b", 8)),
        event("DELETED", pod("b", 9)),
        event("ADDED", pod("c", 10)),
        then="hang",
    )
    async with stage(page([pod("a", 3)], "5"), late) as on:
        await on.told("a@3", "=1", "-a", "c@10")
        assert on.picture.names() == ["c"]


async def test_a_name_that_is_used_again_is_a_new_object() -> None:
    again = watch(
        event("DELETED", pod("a", 7)),
        event("ADDED", pod("a", 8)),
        event("DELETED", pod("a", 7)),  # late: the one before
        event("MODIFIED", pod("a", 9)),
        then="hang",
    )
    async with stage(page([pod("a", 3)], "5"), again) as on:
        await on.told("a@3", "=1", "-a", "a@8", "a@9")


async def test_versions_that_are_no_numbers_are_believed() -> None:
    odd = watch(
        event("ADDED", pod("a", "x2")), event("MODIFIED", pod("a", "x1")), event("DELETED", pod("a", "x3")), then="cut"
    )
    async with stage(page([], "x0"), odd, OPEN) as on:
        await on.told("=0", "a@x2", "a@x1", "-a")
        await on.watching(2)
        assert on.watched_from() == ["x0", "x3"]


async def test_not_all_deleted_objects_are_remembered() -> None:
    async with stage(page([], "5"), OPEN, start=False) as on:
        for number in range(6, 6 + 2 * REMEMBERED):
            on.reflector._remember_deleted(str(number), number)
        assert len(on.reflector._deleted) == REMEMBERED
        assert str(5 + 2 * REMEMBERED) in on.reflector._deleted


@pytest.mark.parametrize("bad", [b"nonsense\n", b'{"type": "ADDED", "object": {"spec": 7}}\n', b'{"type": "ADDED"}\n'])
async def test_a_malformed_event_is_counted_and_lists_again(bad: bytes) -> None:
    lists = [page([pod("a", 3)], "5"), page([pod("a", 3), pod("b", 6)], "7")]
    broken = watch(event("MODIFIED", pod("a", 6)), bad, event("ADDED", pod("c", 8)), then="hang")
    async with stage(lists, broken, OPEN) as on:
        await on.told("a@3", "=1", "a@6", "a@3", "b@6", "=2")
        assert on.reflector.malformed == 1
        assert on.time.slept == [0.1]


async def test_lists_forced_again_and_again_become_rare() -> None:
    lists = page([], "5")
    broken = watch(event("ADDED", pod("a", 6)), b"nonsense\n")
    async with stage(lists, *[broken] * 6, OPEN) as on:
        await on.watching(7)
        assert on.time.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]


async def test_an_undecodable_object_in_a_list_is_never_left_out_silently() -> None:
    async with stage([page([pod("a", 3), {"spec": 7}], "5"), page([pod("a", 3)], "6")], OPEN) as on:
        await on.told("a@3", "=1")
        assert (on.reflector.malformed, on.reflector.lists) == (1, 2)


async def test_others_have_their_turn_within_a_page() -> None:
    many = [pod(str(number), number + 1) for number in range(1000)]
    async with stage(page(many, "2000"), OPEN) as on:
        longest, before = 0, 0
        while not on.reflector.synced:
            await asyncio.sleep(0)
            longest, before = max(longest, len(on.picture.told) - before), len(on.picture.told)
        assert 0 < longest <= 201


async def test_a_failing_sink_is_a_fault_of_ours_and_is_not_hidden() -> None:
    class Failing(Picture):
        def upsert(self, item: objects.Pod) -> None:
            raise OSError("disk full")

    async with serve() as server, client.connect(server.access()) as connection:
        server.on(LIST, page([], "5"))
        server.on(WATCH, watch(event("ADDED", pod("a", 6)), then="hang"))
        reflector = Reflector(connection, resources.PODS, objects.Pod, Failing(), key=lambda item: item.metadata.uid)
        with pytest.raises(OSError, match="disk full"):
            await asyncio.wait_for(reflector.run(), 5)


# Kinds that a cluster may lack


@pytest.mark.parametrize("failure", [refuse(404, "NotFound"), refuse(403, "Forbidden")])
async def test_an_optional_kind_that_is_missing_is_asked_for_once_a_minute(failure: Any) -> None:
    async with stage([failure] * 3 + [page([pod("a", 3)], "5")], OPEN, optional=True) as on:
        await on.told("a@3", "=1")
        assert on.time.slept == [60.0] * 3


async def test_an_optional_kind_is_cut_off_for_no_longer_than_others() -> None:
    async with stage([refuse(503), refuse(503), page([pod("a", 3)], "5")], OPEN, optional=True) as on:
        await on.told("a@3", "=1")
        assert on.time.slept == [0.1, 0.2]


@pytest.mark.parametrize(("optional", "lines"), [(True, 2), (False, 4)])
async def test_failures_of_an_optional_kind_are_told_once_until_they_are_over(
    optional: bool, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    watches = [watch(event("ADDED", pod("b", 6)), then="cut"), OPEN]
    async with stage([refuse(404), refuse(403), refuse(404), page([], "5")], *watches, optional=optional) as on:
        await on.watching(2)
    assert sum("list or watch failed" in line for line in caplog.messages) == lines
