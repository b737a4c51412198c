"""What tests ask of a dashboard in a browser: its pages, and whether they say what the commands say.

The commands are the real ones, asked at the same time. Their figures may differ by what happened between two questions,
so callers ask again until both are the same, or give up.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.browser import Look

PAGES = {
    "overview": "#/",
    "node": "#/node/{node}",
    "gpu": "#/gpu/{node}/{gpu}",
    "waiting": "#/waiting",
    "why": "#/waiting?pod={pod}",
    "history": "#/history",
    "whatif": "#/whatif",
    "health": "#/health",
}
PATIENCE = 30.0  # seconds


async def command(kubeconfig: Path, *words: str) -> Any:
    """What `gpushare` answers as JSON."""
    program = Path(sys.executable).with_name("gpushare")
    process = await asyncio.create_subprocess_exec(
        program, *words, "-o", "json", "--kubeconfig", str(kubeconfig), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return json.loads(out)


async def asked(look: Look, path: str) -> Any:
    """What the page itself gets from there."""
    return await look.page.evaluate("path => fetch(path).then(answer => answer.json())", path)


async def opened(look: Look, page: str, **places: object) -> None:
    """Goes there as with a link, and waits until there is something to read."""
    await look.page.evaluate("hash => { location.hash = hash }", PAGES[page].format(**places))
    await look.page.wait_for_function("() => document.querySelector('main h1, main dl') !== null")
    await look.page.wait_for_function("() => document.querySelector('main [aria-busy=true]') === null")


def mib(amount: int) -> str:
    """As pages write it in English."""
    return f"{amount} MiB" if amount < 1024 else f"{amount / 1024:,.1f} GiB"


def figures_of_inspect(answer: Mapping[str, Any]) -> dict[tuple[str, int], tuple[Any, ...]]:
    """By node and GPU: total, granted, healthy, and the pods with what each was given. In MiB."""
    found = {}
    for node in answer["nodes"]:
        times = 1024 if node["unit"] == "GiB" else 1
        for gpu in node["devs"]:
            pods = sorted((pod["namespace"], pod["name"], pod["usedGPU"] * times) for pod in gpu["pods"])
            found[node["name"], gpu["id"]] = gpu["totalGPU"] * times, gpu["usedGPU"] * times, gpu["healthy"], pods
    return found


async def figures_of_pages(look: Look, nodes: list[str]) -> dict[tuple[str, int], tuple[Any, ...]]:
    """The same, from what the page of each node gets."""
    found = {}
    for name in nodes:
        page = await asked(look, f"api/node/{name}")
        for gpu in page["gpus"]:
            given: dict[tuple[str, str], int] = {}
            for share in gpu["shares"]:
                pod = share["namespace"], share["pod"]
                given[pod] = given.get(pod, 0) + share["granted"]
            pods = sorted((*pod, amount) for pod, amount in given.items())
            found[name, gpu["index"]] = gpu["total"], gpu["granted"], gpu["healthy"], pods
    return found


async def until_as_inspected(look: Look, kubeconfig: Path) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Every GPU of every page is as `gpushare inspect` says; both are asked again while something changes."""
    async with asyncio.timeout(PATIENCE):
        while True:
            said = figures_of_inspect(await command(kubeconfig, "inspect"))
            shown = await figures_of_pages(look, sorted({name for name, _ in said}))
            if shown == said:
                return said
            if said == figures_of_inspect(await command(kubeconfig, "inspect")):
                assert shown == said
            await asyncio.sleep(0.5)
