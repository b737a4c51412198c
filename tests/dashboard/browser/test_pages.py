"""Every page in a real Chromium, on the demo's cluster: it says what `inspect` and `why` say, and keeps to its rules.

`make e2e` has the same on a real control plane. Without Chromium on this machine nothing is looked at here.
"""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from gpushare.core.facts import names
from gpushare.ctl.screen import Screen
from gpushare.demo import app, objects
from gpushare.demo.programs import Dashboard
from gpushare.demo.terminal import Terminal
from gpushare.demo.world import World
from tests.support import browser, dashboards, wait
from tests.support.browser import NARROW, Look

pytestmark = pytest.mark.skipif(not browser.CHROMIUM, reason="no chromium on this machine")

STEPS = 8  # of the demo's story: after the eighth a pod waits
WAITS = "default/llm"
REFUSED = "Failed to load resource: the server responded with a status of 400 (Bad Request)"  # the YAML that is none
TRIED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: tried}
spec:
  replicas: 40
  template:
    spec:
      containers:
        - {name: main, image: x, resources: {limits: {aliyun.com/gpu-mem: 500}}}
"""


@asynccontextmanager
async def demo(folder: Path) -> AsyncIterator[tuple[World, Dashboard]]:
    terminal = Terminal(Screen(io.StringIO(), io.StringIO()), hurry=True)
    async with app.prepared(folder, terminal, moment=0.05) as (world, story):
        await story.tell(STEPS)
        async with app.running_dashboard(world, folder) as dashboard:
            await dashboard.start()
            await dashboard.shown()
            yield world, dashboard


async def test_every_page_says_what_inspect_and_why_say(tmp_path: Path) -> None:
    async with demo(tmp_path) as (world, dashboard), browser.looking(await dashboard.invited()) as look:
        kubeconfig = world.cluster.kubeconfig
        await look.shows("What needs you")
        said = await dashboards.until_as_inspected(look, kubeconfig)
        await _overview(look, said)
        await _node_and_gpu(look, said)
        await _waiting(look, kubeconfig)
        await _what_if(look)
        for page in ("history", "health"):
            await dashboards.opened(look, page)
        assert look.complaints == [REFUSED]
        assert look.foreign == []


async def _overview(look: Look, said: dict[tuple[str, int], tuple[int, int, bool, list[object]]]) -> None:
    total, granted = sum(gpu[0] for gpu in said.values()), sum(gpu[1] for gpu in said.values())
    text = await look.text("main")
    assert f"{granted * 100 / total:.0f} %" in text
    assert dashboards.mib(granted) in text
    await look.page.get_by_role("button", name="Show as table").click()
    await look.shows("gpu-a")


async def _node_and_gpu(look: Look, said: dict[tuple[str, int], tuple[int, int, bool, list[object]]]) -> None:
    await dashboards.opened(look, "node", node="gpu-c")
    await look.shows("Would still fit here")
    text = await look.text("main")
    for index in (0, 1):
        total, granted, _, _ = said["gpu-c", index]
        assert dashboards.mib(total - granted) in text
    await dashboards.opened(look, "gpu", node="gpu-c", gpu=1)
    await look.shows("Containers")
    await look.page.wait_for_selector("canvas")


async def _waiting(look: Look, kubeconfig: Path) -> None:
    namespace, name = WAITS.split("/")
    why = await dashboards.command(kubeconfig, "why", name, "-n", namespace)
    answer = await dashboards.asked(look, f"api/why/{WAITS}")
    same = ("verdict", "owner", "code", "message", "nodes", "ways", "request", "pod")
    assert {key: answer["explanation"].get(key) for key in same} == {key: why.get(key) for key in same}
    (listed,) = (await dashboards.command(kubeconfig, "inspect"))["waiting"]
    (shown,) = (await dashboards.asked(look, "api/waiting"))["pods"]
    assert {key: shown[key] for key in listed} == listed
    await dashboards.opened(look, "why", pod=WAITS)
    await look.shows(why["message"])
    for sentence in answer["ways"]:
        await look.shows(sentence)


async def _what_if(look: Look) -> None:
    await dashboards.opened(look, "whatif")
    await look.page.fill("textarea", TRIED)
    await look.page.get_by_role("button", name="Would it fit?").click()
    await look.shows("of 40 fit")
    await look.page.fill("textarea", "kind: [")
    await look.page.get_by_role("button", name="Would it fit?").click()
    await look.page.wait_for_selector("[role=alert]")


async def test_a_name_that_is_markup_is_shown_as_it_is(tmp_path: Path) -> None:
    """Kubernetes refuses such names of objects. Texts of others reach the page all the same: a GPU's model."""
    bad = "<img src=x onerror=alert(1)>"
    async with demo(tmp_path) as (world, dashboard), browser.looking(await dashboard.invited()) as look:
        await look.shows("What needs you")
        limits = {"metadata": {"name": "odd", "annotations": {names.POLICY: bad}}}
        await world.create(objects.pod("odd", objects.container("main", names.GPU_MEM, 100)) | limits)
        await wait.eventually_asked(partial(_is_listed, look, "odd"), "the pod is listed", dashboards.PATIENCE)
        await dashboards.opened(look, "why", pod="default/odd")
        await look.shows("odd")
        await look.page.wait_for_timeout(500)
        assert await look.page.query_selector("img[src=x]") is None
        assert look.complaints == []


async def _is_listed(look: Look, name: str) -> bool:
    return any(pod["name"] == name for pod in (await dashboards.asked(look, "api/waiting"))["pods"])


async def test_narrow_dark_and_in_other_languages_nothing_sticks_out(tmp_path: Path) -> None:
    async with demo(tmp_path) as (_, dashboard):
        for language, word in (("ko-KR", "대기"), ("zh-CN", "等待")):
            async with browser.looking(await dashboard.invited(), size=NARROW, dark=True, language=language) as look:
                await look.shows(word)
                for page in dashboards.PAGES:
                    await dashboards.opened(look, page, node="gpu-c", gpu=1, pod=WAITS)
                    wide = await look.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
                    assert wide <= 0, f"{page} in {language} is wider than the window by {wide} px"
                    await look.picture(f"narrow-{language[:2]}-{page}")
                assert look.complaints == []
