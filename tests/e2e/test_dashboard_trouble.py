"""What a page of the dashboard does when something breaks: it says how old it is, keeps its figures, and recovers by
itself. Nothing jumps meanwhile.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Request

from tests.e2e.harness import busy_gpus, shipped
from tests.e2e.harness import dashboards as programs
from tests.e2e.harness.dashboards import Dashboard
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support import browser, wait
from tests.support.browser import Look

pytestmark = pytest.mark.skipif(not browser.CHROMIUM, reason="no chromium on this machine")

AWAY = 60.0  # seconds without the API server
SMALL = (1000, 500)  # a window that has to be scrolled
PATIENCE = 60.0
HIDE = """hidden => {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event('visibilitychange'));
}"""
# What a person would notice if it changed: the figures, where the page is, and what is selected.
NOTICED = """() => ({
  sums: document.querySelector('.sums').innerText,
  cursor: document.querySelector('.cursor').getBoundingClientRect().top,
  card: document.querySelector('.card header').innerText,
  focus: document.activeElement.className,
  loaded: performance.timeOrigin,
})"""
STORE = "() => import(new URL('static/js/store.js', location.href)).then(({store}) => [store.epoch, store.seq])"


class Requests:
    """What a page asks for, in order: paths from api/ on, and streams that have ended."""

    def __init__(self, look: Look) -> None:
        self.asked, self.ended = list[str](), list[str]()
        look.page.on("request", lambda request: self._note(self.asked, request))
        for event in ("requestfailed", "requestfinished"):
            look.page.on(event, lambda request: self._note(self.ended, request))

    def streams(self) -> list[str]:
        return [path for path in self.asked if path.startswith("stream")]

    def _note(self, where: list[str], request: Request) -> None:
        _, found, path = request.url.partition("/api/")
        if found:
            where.append(path)


async def _seq(look: Look) -> tuple[str, int]:
    epoch, seq = await look.page.evaluate(STORE)
    return str(epoch), int(seq)


async def _is_another(look: Look, epoch: str) -> bool:
    return (await _seq(look))[0] != epoch


async def _goes_on(look: Look, epoch: str, seq: int) -> None:
    """More messages have come, of the same process."""

    async def later() -> bool:
        return (await _seq(look))[0] == epoch and (await _seq(look))[1] > seq

    await wait.eventually_asked(later, "the stream goes on", PATIENCE)


async def _select(look: Look) -> dict[str, Any]:
    """A GPU of the map, with keys, on a page that is scrolled down."""
    await look.shows("What needs you")
    await look.page.wait_for_selector(".tiles canvas")
    await look.page.focus(".tiles")
    await look.page.keyboard.press("End")
    await look.page.wait_for_selector(".card")
    await look.page.evaluate("() => scrollTo(0, 150)")
    await look.page.wait_for_timeout(300)
    assert await look.page.evaluate("() => scrollY") > 0
    found: dict[str, Any] = await look.page.evaluate(NOTICED)
    return found


async def test_a_page_says_how_old_it_is_while_the_api_server_is_away(world: World, figures: Figures) -> None:
    async with (
        busy_gpus.busy(world) as nodes,
        programs.local(world.cluster) as dashboard,
        browser.looking(await dashboard.link(), size=SMALL) as look,
    ):
        before = await _select(look)
        async with world.cluster.away():
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await look.page.wait_for_selector(".banner")
            said = loop.time() - begun
            first = await look.text(".banner [aria-live=off]")
            assert await look.page.evaluate("() => document.querySelector('.banner').getBoundingClientRect().top") >= 0
            await asyncio.sleep(AWAY - (loop.time() - begun))
            last = await look.text(".banner [aria-live=off]")
            during = await look.page.evaluate(NOTICED)
            await look.picture("e2e-away")
        await look.page.wait_for_selector(".banner", state="detached", timeout=PATIENCE * 1000)
        after = await look.page.evaluate(NOTICED)
        await busy_gpus.tell(world, nodes[0], list(world.watch.pods.values()))  # nothing uses too much any more
        await look.page.wait_for_function(
            "sums => document.querySelector('.sums').innerText !== sums", arg=before["sums"]
        )
        assert look.complaints == []
    _nothing_jumped(before, during)
    _nothing_jumped(before, after)
    assert first != last
    assert "old" in last
    figures.say("a page while the API server is away", f"after {said:.0f} s: {first!r}; after {AWAY:.0f} s: {last!r}")


def _nothing_jumped(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert abs(before["cursor"] - after["cursor"]) <= 1
    assert {key: value for key, value in before.items() if key != "cursor"} == {
        key: value for key, value in after.items() if key != "cursor"
    }


async def test_a_dashboard_that_was_killed_asks_a_person_to_log_in_again(world: World) -> None:
    """Sessions are in its memory: whoever had one needs a new link."""
    await world.make_nodes(1, gpus=[8000])
    async with (
        programs.local(world.cluster) as dashboard,
        browser.looking(await dashboard.link()) as look,
    ):
        await look.shows("What needs you")
        await dashboard.end(signal.SIGKILL)
        await look.page.wait_for_selector(".banner")
        await dashboard.start()
        await look.shows("Open the address that this command prints", PATIENCE)
        await look.page.goto(await dashboard.link())
        await look.shows("What needs you")


@contextlib.asynccontextmanager
async def _looked_at_behind_a_proxy(world: World) -> AsyncIterator[tuple[Dashboard, str]]:
    """A dashboard that needs no login, and the token that the proxy in front of it would send."""
    namespace, kubectl = world.api.namespace, world.cluster.kubectl
    await kubectl("create", "serviceaccount", "viewer", "-n", namespace)
    await kubectl("apply", "-f", shipped.DEPLOY / "view-rbac.yaml")
    whose = f"--serviceaccount={namespace}:viewer"
    await kubectl("create", "clusterrolebinding", namespace, "--clusterrole=gpushare-view", whose)
    try:
        async with programs.in_cluster(world.cluster, "--behind-proxy") as dashboard:
            yield dashboard, await programs.token(world.cluster, namespace, "viewer")
    finally:
        await kubectl("delete", "clusterrolebinding", namespace)
        await kubectl("delete", "-f", shipped.DEPLOY / "view-rbac.yaml")


async def test_a_stream_that_is_cut_or_not_wanted_goes_on_where_it_stopped(world: World, figures: Figures) -> None:
    """Cut by a proxy; not wanted by a page that is hidden. A process that is started again has a new state, which the
    page reads by itself. It is never loaded again."""
    async with (
        busy_gpus.busy(world),
        _looked_at_behind_a_proxy(world) as (dashboard, token),
        programs.behind(dashboard) as between,
        browser.looking(between.url, size=SMALL, extra_http_headers={"Authorization": f"Bearer {token}"}) as look,
    ):
        requests = Requests(look)
        before = await _select(look)
        epoch, seq = await _seq(look)
        requests.asked.clear()
        assert between.cut() > 0
        await _goes_on(look, epoch, seq)
        await wait.eventually(requests.streams, "a new stream", PATIENCE)
        assert "snapshot" not in requests.asked
        _nothing_jumped(before, await look.page.evaluate(NOTICED))

        await _hidden(look, requests)
        _nothing_jumped(before, await look.page.evaluate(NOTICED))

        requests.asked.clear()
        await dashboard.end(signal.SIGKILL)
        await look.page.wait_for_selector(".banner")
        await dashboard.start()
        await look.page.wait_for_selector(".banner", state="detached", timeout=PATIENCE * 1000)
        await wait.eventually_asked(lambda: _is_another(look, epoch), "the new process is read", PATIENCE)
        assert "snapshot" in requests.asked
        _nothing_jumped(before, await look.page.evaluate(NOTICED))
    figures.say(
        "streams that end", f"cut by a proxy, hidden for 30 s, process killed; {between.connections} connections"
    )


async def _hidden(look: Look, requests: Requests) -> None:
    """After 30 s it has no stream; when it is seen again it goes on, without a new snapshot."""
    epoch, _ = await _seq(look)
    requests.asked.clear()
    requests.ended.clear()
    await look.page.evaluate(HIDE, True)
    await wait.eventually(lambda: [one for one in requests.ended if one.startswith("stream")], "no stream", PATIENCE)
    _, seq = await _seq(look)
    await asyncio.sleep(3.0)
    assert (await _seq(look), requests.streams()) == ((epoch, seq), [])
    await look.page.evaluate(HIDE, False)
    await _goes_on(look, epoch, seq)
    assert requests.streams() == [f"stream?from={epoch}.{seq}"]
    assert "snapshot" not in requests.asked
