"""Every page of the dashboard in a real Chromium, on a real cluster: it says what `inspect` and `why` say, breaks no
rule of its own, can be used with keys alone, and everybody can read its texts.

Pictures of the pages are kept in .build/pictures.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import busy_gpus
from tests.e2e.harness import dashboards as programs
from tests.e2e.harness.cluster import ADMIN
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.support import browser, dashboards
from tests.support.browser import NARROW, WIDE, Look

pytestmark = pytest.mark.skipif(not browser.CHROMIUM, reason="no chromium on this machine")

CONTRAST = (Path(browser.__file__).parent / "contrast.js").read_text()
EXPLAINED = ("verdict", "owner", "code", "message", "nodes", "ways", "request", "pod")
LOOKS = {"light": (WIDE, False), "dark": (WIDE, True), "narrow": (NARROW, False)}
MOST_TABS = 60  # until the map has the focus
FOCUS = """() => {
  const element = document.activeElement;
  const shown = element.matches('.segments input, .toggle input') ? element.nextElementSibling : element;
  const { outlineStyle, outlineWidth } = getComputedStyle(shown);
  const seen = element !== document.body && outlineStyle !== 'none' && parseFloat(outlineWidth) > 0;
  return [element.outerHTML.slice(0, 80), seen];
}"""


async def test_every_page_says_what_inspect_and_why_say(world: World, figures: Figures) -> None:
    admin = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN])
    async with busy_gpus.busy(world) as nodes, programs.local(world.cluster) as dashboard:
        places = {"node": nodes[0], "gpu": 0, "pod": f"{world.api.namespace}/{busy_gpus.WAITS}"}
        async with browser.looking(await dashboard.link()) as look:
            await look.shows("What needs you")
            said = await dashboards.until_as_inspected(look, admin)
            await _overview(look, said)
            await _node_and_gpu(look, said, nodes[0])
            await _waiting(look, admin, str(places["pod"]))
            await dashboards.opened(look, "whatif")
            assert (look.complaints, look.foreign) == ([], [])
        texts = []
        for name, (size, dark) in LOOKS.items():
            async with browser.looking(await dashboard.link(), size=size, dark=dark) as look:
                texts += await _pictures(look, name, places)
    assert len(said) == len(nodes) * len(busy_gpus.GPUS)
    figures.say("the dashboard's pages on a real cluster", f"{len(said)} GPUs as inspect says, {'; '.join(texts)}")


async def _overview(look: Look, said: dict[tuple[str, int], tuple[Any, ...]]) -> None:
    total, granted = sum(gpu[0] for gpu in said.values()), sum(gpu[1] for gpu in said.values())
    text = await look.text("main")
    assert f"{granted * 100 / total:.0f} %" in text
    assert dashboards.mib(granted) in text
    await look.shows("more used than granted on 1 GPU")
    await look.shows("1 pod waits")


async def _node_and_gpu(look: Look, said: dict[tuple[str, int], tuple[Any, ...]], node: str) -> None:
    await dashboards.opened(look, "node", node=node)
    await look.shows("Would still fit here")
    text = await look.text("main")
    for index in range(len(busy_gpus.GPUS)):
        total, granted, _, pods = said[node, index]
        assert dashboards.mib(total - granted) in text
        assert all(name in text for _, name, _ in pods)
    await dashboards.opened(look, "gpu", node=node, gpu=0)
    await look.shows("Containers")
    await look.page.wait_for_selector("canvas")
    await look.shows(dashboards.mib(busy_gpus.GIVEN + busy_gpus.OVER))


async def _waiting(look: Look, admin: Path, pod: str) -> None:
    namespace, name = pod.split("/")
    why = await dashboards.command(admin, "why", name, "-n", namespace)
    answer = await dashboards.asked(look, f"api/why/{pod}")
    assert {key: answer["explanation"].get(key) for key in EXPLAINED} == {key: why.get(key) for key in EXPLAINED}
    (listed,) = (await dashboards.command(admin, "inspect"))["waiting"]
    (shown,) = (await dashboards.asked(look, "api/waiting"))["pods"]
    assert {key: shown[key] for key in listed} == listed
    await dashboards.opened(look, "why", pod=pod)
    await look.shows(why["message"])
    for sentence in answer["ways"]:
        await look.shows(sentence)


async def _pictures(look: Look, name: str, places: dict[str, Any]) -> list[str]:
    """One of each page, whose texts are easy to read, and which is not wider than the window."""
    await look.shows("What needs you")
    looked, bad = 0, dict[str, list[str]]()
    for page in dashboards.PAGES:
        await dashboards.opened(look, page, **places)
        await look.page.wait_for_timeout(500)  # for what is loaded when first needed, as charts are
        await look.picture(f"e2e-{name}-{page}")
        assert await look.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"), page
        found = await look.page.evaluate(CONTRAST)
        looked += found["looked"]
        bad |= {page: found["bad"]} if found["bad"] else {}
    assert bad == {}
    assert (look.complaints, look.foreign) == ([], [])
    return [f"{name}: {looked} texts of {len(dashboards.PAGES)} pages have the contrast of WCAG AA"]


async def test_keys_alone_lead_everywhere(world: World, figures: Figures) -> None:
    async with (
        busy_gpus.busy(world) as nodes,
        programs.local(world.cluster) as dashboard,
        browser.looking(await dashboard.link()) as look,
    ):
        await look.shows("What needs you")
        await look.page.wait_for_selector(".tiles canvas")
        tabs = await _to_the_map(look)
        await look.page.keyboard.press("ArrowRight")
        await look.page.wait_for_selector(".card")
        await look.page.keyboard.press("Enter")
        await look.page.wait_for_url("**/#/gpu/**")
        await look.shows("Containers")
        await _keys(look)
        await _search(look, nodes[1])
        for key, page in (("2", "waiting"), ("3", "history"), ("4", "whatif"), ("5", "health"), ("1", "")):
            await look.page.keyboard.press(key)
            await look.page.wait_for_url(f"**/#/{page}")
        assert look.complaints == []
    figures.say("the dashboard with keys alone", f"{tabs} times Tab to the map, and the focus is seen at each stop")


async def _to_the_map(look: Look) -> int:
    for tabs in range(1, MOST_TABS):
        await look.page.keyboard.press("Tab")
        element, visible = await look.page.evaluate(FOCUS)
        assert visible, f"the focus is not seen on {element}"
        if await look.page.evaluate("() => document.activeElement.matches('.tiles')"):
            return tabs
    raise AssertionError("the map never had the focus")


async def _keys(look: Look) -> None:
    """The list opens, has the focus, and gives it back."""
    before = await look.page.evaluate("() => document.activeElement.outerHTML.slice(0, 80)")
    await look.page.keyboard.press("?")
    await look.page.wait_for_selector("dialog.keylist[open]")
    assert await look.page.evaluate("() => document.activeElement.closest('dialog') !== null")
    await look.page.keyboard.press("Escape")
    await look.page.wait_for_selector("dialog", state="detached")
    assert await look.page.evaluate("() => document.activeElement.outerHTML.slice(0, 80)") == before


async def _search(look: Look, node: str) -> None:
    await look.page.keyboard.press("/")
    await look.page.wait_for_selector("dialog.search[open]")
    await look.page.keyboard.type(node)
    await look.page.wait_for_selector("dialog.search li[aria-selected=true]")
    await look.page.keyboard.press("Enter")
    await look.page.wait_for_url(f"**/#/node/{node}")
    await look.shows("Would still fit here")
