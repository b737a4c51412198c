"""A watch is believed as long as the cluster's history is the one it came from: silence, and etcd put back."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest

from gpushare.core.facts import objects
from gpushare.kube import client, models, resources, stream
from gpushare.kube.errors import WentBack
from gpushare.kube.reflector import Reflector
from gpushare.kube.requests import Request
from gpushare.kube.resources import Resource
from tests.kube.test_reflector import FAR, OPEN, REVISION, Picture, stage
from tests.scenarios.cluster import Loop
from tests.support.scripted_api import cut, event, hang, page, pod, refuse, serve_api, watch
from tests.support.wait import eventually

QUICK = 0.01  # seconds of silence before the API server is asked
BACK = page([], "3")
BEFORE = page([pod("kept", 4), pod("new", 5)], "5")
AFTER = page([pod("gone", 2), pod("kept", 1)], "3")


async def test_the_revision_is_read_as_one_key_that_nobody_has() -> None:
    async with serve_api() as (server, connection):
        for resource, namespace, asked in [
            (resources.PODS, "", "/api/v1/namespaces/kube-system/pods"),  # a name is a key only within a namespace
            (resources.NODES, "", "/api/v1/nodes"),
            (resources.CONFIG_MAPS, "ml", "/api/v1/namespaces/ml/configmaps"),
        ]:
            server.on(f"GET {asked}", page([], "77"))
            assert await connection.revision(resource, namespace) == "77"
            assert server.asked[-1].path == asked
            assert server.asked[-1].query == {"fieldSelector": f"metadata.name={client.NOBODY}"}


async def test_a_silent_watch_is_asked_about_and_not_cut() -> None:
    async with stage(page([], "5"), OPEN, silence=QUICK) as on:
        await eventually(lambda: on.server.count(REVISION) >= 5)
        assert (on.reflector.watches, on.reflector.lists, on.reflector.disconnected_for()) == (1, 1, 0.0)


async def test_a_watch_that_speaks_is_not_asked_about() -> None:
    async with stage(page([], "5"), watch(event("ADDED", pod("a", 6)), then="hang"), silence=60.0) as on:
        await on.told("=0", "a@6")
        assert on.server.count(REVISION) == 0


async def test_after_long_silence_the_watch_is_opened_again_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def a_minute_later(request: Any) -> Any:
        on.time.now += 60
        return await FAR(request)

    quiet = watch(event("ADDED", pod("a", 6)), then="hang")
    async with stage(page([], "5"), quiet, OPEN, revisions=[a_minute_later], silence=QUICK) as on:
        await on.watching(3)
        assert on.watched_from()[:3] == ["5", "6", "6"]
        assert (on.reflector.lists, on.time.slept, caplog.messages) == (1, [], [])


@pytest.mark.parametrize("unheard", [cut, hang])
async def test_silence_of_an_api_server_that_does_not_answer_counts_from_the_last_word(unheard: Any) -> None:
    gate = asyncio.Event()

    async def gated(_: float) -> None:
        await gate.wait()

    async with stage(
        page([], "5"), OPEN, revisions=[unheard], silence=0.03, sleep=gated, real_time=True, timeout=0.2
    ) as on:
        await eventually(lambda: on.reflector.failure is not None)
        assert on.reflector.disconnected_for() >= 0.025  # not since it was noticed
        assert on.reflector.disconnected_for() == pytest.approx(on.reflector.age(), abs=0.01)
        gate.set()


async def test_an_api_server_too_busy_for_an_answer_is_there() -> None:
    async with stage(page([], "5"), OPEN, revisions=[refuse(429), refuse(500)], silence=QUICK) as on:
        await eventually(lambda: on.server.count(REVISION) >= 5)
        assert (on.reflector.watches, on.reflector.disconnected_for()) == (1, 0.0)


async def test_revisions_that_went_back_during_silence_start_everything_anew() -> None:
    """`gone` was deleted, and is there again; `new` never was."""
    deleted = watch(event("DELETED", pod("gone", 6)), then="hang")
    lists = [page([pod("gone", 2), pod("kept", 4), pod("new", 5)], "5"), AFTER]
    went_on = watch(event("MODIFIED", pod("kept", 4)), event("MODIFIED", pod("gone", 5)), then="hang")
    async with stage(lists, deleted, went_on, revisions=[page([], "9"), BACK, FAR], silence=QUICK) as on:
        await on.told(
            "gone@2", "kept@4", "new@5", "=3", "-gone", "gone@2", "kept@1", "=2", "kept@4", "gone@5"
        )  # fmt: skip
        assert on.picture.names() == ["gone", "kept"]
        assert on.watched_from() == ["5", "3"]


async def test_nothing_counts_from_the_moment_history_went_back_until_the_list_is_complete() -> None:
    rest = asyncio.Event()

    async def second_page(request: Any) -> Any:
        await rest.wait()
        return await page([pod("kept", 1)], "3")(request)

    lists = [BEFORE, page([pod("gone", 2)], "3", "more"), second_page]
    async with stage(lists, OPEN, revisions=[page([], "9"), BACK, FAR], silence=QUICK) as on:
        await on.told("kept@4", "new@5", "=2", "gone@2")
        assert not on.reflector.synced
        rest.set()
        await on.watching(2)
        assert on.reflector.synced


async def test_why_it_started_anew_is_said() -> None:
    async with stage([BEFORE, hang], OPEN, revisions=[BACK], silence=QUICK) as on:
        await eventually(lambda: isinstance(on.reflector.failure, WentBack))
        assert "revision 3 after 5: etcd was restored" in str(on.reflector.failure)


async def test_a_watch_of_the_future_never_counts_as_connected() -> None:
    asked = asyncio.Event()
    answer = asyncio.Event()

    async def later(request: Any) -> Any:
        asked.set()
        await answer.wait()
        return await BACK(request)

    async with stage([BEFORE, AFTER], watch(then="cut"), OPEN, revisions=[later, FAR]) as on:
        await asked.wait()
        assert on.reflector._lost is not None
        answer.set()
        await on.told("kept@4", "new@5", "=2", "gone@2", "kept@1", "=2")
        await on.watching(3)
        assert on.watched_from() == ["5", "5", "3"]


async def test_the_highest_revision_that_anything_told_is_what_counts() -> None:
    """A quiet kind may be far behind the cluster, and then its own last event proves little."""
    async with stage([BEFORE, page([], "50")], OPEN, revisions=[page([], "100"), page([], "50")], silence=QUICK) as on:
        await on.told("kept@4", "new@5", "=2", "=0")


async def test_revisions_that_are_no_numbers_prove_nothing() -> None:
    odd = [page([], "x1"), page([], ""), page([], "0")]
    async with stage(page([], "x9"), watch(bookmark_of("x9"), then="cut"), OPEN, revisions=odd, silence=QUICK) as on:
        await eventually(lambda: on.server.count(REVISION) >= 6)
        assert on.reflector.lists == 1


def bookmark_of(version: str) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}


@pytest.mark.parametrize("again", [refuse(410, "Expired"), refuse(504, "Timeout", "Too large resource version: 5")])
async def test_a_picture_with_a_gap_is_no_picture_until_it_is_listed_anew(again: Any) -> None:
    async with stage([BEFORE, hang], again) as on:
        await eventually(lambda: on.reflector.lists == 2)
        assert not on.reflector.synced


class Quiet(client.Api):
    """An API server that sends no bookmarks, in a cluster where nothing happens to pods. Time is the loop's."""

    def __init__(self) -> None:  # no connection: nothing of the real one
        self.asked = self.opened = 0

    async def list_pages(self, *_: Any, **__: Any) -> AsyncIterator[tuple[list[Any], str]]:
        yield [], "5"

    @asynccontextmanager
    async def watch(
        self, resource: Resource, kind: Any, resource_version: str, *, namespace: str = "", query: Any = None,
        timeout_seconds: int = 300, silence: float = client.SILENCE,
    ) -> AsyncIterator[Any]:  # fmt: skip
        self.opened += 1
        loop = asyncio.get_running_loop()
        content = aiohttp.StreamReader(Mock(), limit=1 << 16, loop=loop)
        loop.call_later(timeout_seconds, content.feed_eof)
        yield stream.events(content, kind, resource.plural, silence, 10.0)

    async def fetch(self, request: Request, kind: Any) -> Any:
        self.asked += 1
        return models.Versioned(models.ListMeta(str(5 + self.asked)))


def test_twenty_quiet_minutes_cut_nothing_and_nobody_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        quiet, picture = Quiet(), Picture()
        clock = asyncio.get_running_loop().time
        reflector = Reflector(
            quiet, resources.PODS, objects.Pod, picture, key=lambda item: item.metadata.uid, clock=clock
        )
        running = asyncio.ensure_future(reflector.run())
        longest = 0.0
        for _ in range(20 * 60 * 10):
            await asyncio.sleep(0.1)
            longest = max(longest, reflector.disconnected_for(), reflector.age())
        running.cancel()
        assert longest <= client.SILENCE
        assert (reflector.lists, picture.told) == (1, ["=0"])
        assert 200 < quiet.asked < 300  # one small read each five seconds

    with caplog.at_level(logging.INFO), asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(story())
    assert caplog.messages == []
