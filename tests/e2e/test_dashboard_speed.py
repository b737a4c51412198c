"""The dashboard with 8,000 GPUs and 25,000 pods, of which 533 GPUs say something new each second: what a first look
costs, how smoothly Chromium scrolls meanwhile, and what twenty open pages cost.

The objects are those of the embedded API server, loaded without a request each: the real one would need minutes for
them, and nothing here depends on it. Chromium draws without a graphics card, on the cores that everything shares.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from bench import process, world
from gpushare.core.facts import vitals
from gpushare.devcluster.apiserver.server import ApiServer
from tests.e2e.harness import dashboards as programs
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.dashboards import Dashboard
from tests.e2e.harness.figures import Figures
from tests.support import browser, wait
from tests.support.browser import Look
from tests.support.tasks import beside

pytestmark = [pytest.mark.alone, pytest.mark.skipif(not browser.CHROMIUM, reason="no chromium on this machine")]

NODES, PODS = 1_000, 25_000
PARTS = (32, 16, 10, 8, 8, 5, 4, 3)  # what pods ask: that part of a GPU
CHANGING = 67  # nodes a second, 8 GPUs each: all of them every 15 seconds
CLIENTS, SECONDS = 20, 15
SETTLING = 3.0  # seconds
MOST_BYTES = 180_000
RESOURCE = f"{vitals.PLURAL}.{vitals.GROUP}"
PATIENCE = 120.0
SCROLL = """seconds => new Promise(done => {
  const frames = [], began = performance.now();
  let last = began, y = 0, step = 24;
  const frame = now => {
    frames.push(now - last);
    last = now;
    y += step;
    if (y < 0 || y > document.documentElement.scrollHeight - innerHeight) step = -step;
    scrollTo(0, y);
    if (now - began < seconds * 1000) requestAnimationFrame(frame);
    else done(frames.slice(1));
  };
  requestAnimationFrame(frame);
})"""


class Crowd:
    """Pods and figures by chance, from one seed: what is alike everywhere would be sent in no time."""

    def __init__(self, server: ApiServer) -> None:
        self._server, self._chance, self.written = server, random.Random(7), 0
        self._told = [world.gpu_node(number, 0) for number in range(NODES)]
        for gpu in (gpu for told in self._told for gpu in told["status"]["gpus"]):
            gpu |= {"utilization": self._chance.choice((0, 0, self._chance.randrange(101)))}
            gpu |= {"temperature": self._chance.randrange(35, 80)}
        pods = list(self._pods())
        nodes = ({"kind": "Node"} | world.node(number, size=0) for number in range(NODES))
        server.load([*nodes, *pods, *map(self._next, range(NODES))])

    async def change(self) -> None:
        """For ever, so many a second."""
        due = time.monotonic()
        while True:
            for number in range(self.written, self.written + CHANGING):
                made = self._next(number % NODES)
                self._server.store.update(RESOURCE, made["metadata"]["name"], made)
            self.written += CHANGING
            due += 1.0
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _pods(self) -> Iterator[dict[str, Any]]:
        free = {(number, gpu): world.TOTAL for number in range(NODES) for gpu in range(world.GPUS)}
        places, count = list(free), 0
        while count < PODS:
            place, amount = self._chance.choice(places), world.TOTAL // self._chance.choice(PARTS)
            if free[place] >= amount:
                free[place] -= amount
                count += 1
                yield self._pod(f"app-{self._chance.randrange(10**9):09x}-{count}", *place, amount)

    def _pod(self, name: str, number: int, gpu: int, amount: int) -> dict[str, Any]:
        namespace = f"team-{self._chance.randrange(40)}"
        made = world.pod(name, amount, node=world.node_name(number), gpu=gpu, size=0)
        made["metadata"]["namespace"] = namespace
        used = amount * self._chance.choice((1, 7, 9)) // 10
        self._told[number]["status"]["gpus"][gpu]["containers"].append({
            "namespace": namespace, "pod": name, "uid": f"uid-{name}", "container": "c0",
            "grantedMiB": amount, "usedMiB": used, "smPercent": self._chance.randrange(100),
        })  # fmt: skip
        return {"kind": "Pod"} | made

    def _next(self, number: int) -> dict[str, Any]:
        """What a node tells next."""
        told = self._told[number]
        gpus = [self._gpu(gpu) for gpu in told["status"]["gpus"]]
        sampled = datetime.now(UTC).isoformat(timespec="seconds")
        metadata = {key: value for key, value in told["metadata"].items() if key != "resourceVersion"}
        return {**told, "metadata": metadata, "status": {**told["status"], "sampledAt": sampled, "gpus": gpus}}

    def _gpu(self, gpu: dict[str, Any]) -> dict[str, Any]:
        """A bit more or less of everything than before; many GPUs do nothing."""
        near = self._chance.randint
        gpu["utilization"] = busy = min(max(gpu["utilization"] + near(-8, 8), 0), 100)
        gpu["temperature"] = min(max(gpu["temperature"] + near(-1, 1), 30), 90)
        gpu["powerWatts"] = 60 + 3 * busy + near(0, 11)
        for one in gpu["containers"]:
            if self._chance.random() < 0.3:
                one["usedMiB"] = min(max(one["usedMiB"] + near(-64, 64), 0), one["grantedMiB"])
        return {**gpu, "usedMiB": sum(one["usedMiB"] for one in gpu["containers"]) + 412,
                "containers": [dict(one) for one in gpu["containers"]]}  # fmt: skip


@contextlib.asynccontextmanager
async def _large(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[Dashboard, Crowd]]:
    """A dashboard that has read everything."""
    async with ApiServer(audit=False) as server:
        crowd = Crowd(server)
        config = server.write_kubeconfig(folder / "kubeconfig")
        dashboard = Dashboard(cluster, "http", ["--no-browser", "--kubeconfig", str(config)])
        async with programs.running(dashboard):
            async with programs.opened(dashboard, await dashboard.link()) as reader:

                async def is_read() -> bool:
                    return (await reader.get("api/snapshot"))[0] == 200

                await wait.eventually_asked(is_read, "the cluster is read", PATIENCE)
            yield dashboard, crowd


async def test_8000_gpus_are_shown_smoothly(cluster: Cluster, tmp_path: Path, figures: Figures) -> None:
    async with _large(cluster, tmp_path) as (dashboard, crowd), browser.looking(await dashboard.link()) as look:
        await look.shows("What needs you", PATIENCE)
        wire = await _first_look(look, dashboard.url)
        async with beside(crowd.change()):
            await asyncio.sleep(SETTLING)
            frames = sorted(await look.page.evaluate(SCROLL, SECONDS))
            shown = await look.text(".sums")
        await look.picture("e2e-8000")
        assert look.complaints == []
    median, late, last = (frames[int(len(frames) * part)] for part in (0.5, 0.99, 0.9999))
    figures.say(
        f"a first look at 8,000 GPUs and {PODS:,} pods",
        f"{wire.bodies / 1000:.0f} KB (most: 180), with headers {wire.all / 1000:.0f}; {wire.answers} answers, "
        f"the largest: {wire.largest} KB",
    )
    figures.say(
        "scrolling while 533 GPUs change each second",
        f"{len(frames)} frames in {SECONDS} s, ms: median {median:.1f} (goal 16), 99 % {late:.0f} (goal 50), "
        f"longest {last:.0f}; software drawing, all on shared cores",
    )
    assert "GPUs on 1000 nodes\n8000" in shown
    assert wire.bodies <= MOST_BYTES
    assert len(frames) > SECONDS  # it never stood still


class Wire(NamedTuple):
    answers: int
    bodies: int  # bytes, as they are sent
    all: int  # with headers
    largest: str


async def _first_look(look: Look, url: str) -> Wire:
    """Of an empty cache, until the map is there."""
    page = await look.context.new_page()
    wire = await look.context.new_cdp_session(page)
    names, bodies, sizes = dict[str, str](), dict[str, int](), dict[str, int]()

    def received(told: dict[str, Any]) -> None:
        names[told["requestId"]] = told["response"]["url"].removeprefix(url)
        bodies[told["requestId"]] = int(told["response"]["headers"].get("Content-Length", 0))

    wire.on("Network.responseReceived", received)
    wire.on("Network.loadingFinished", lambda told: sizes.update({told["requestId"]: int(told["encodedDataLength"])}))
    await wire.send("Network.enable")
    await wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    await page.goto(url)
    await page.wait_for_selector(".tiles canvas", timeout=PATIENCE * 1000)
    await page.wait_for_timeout(1000)
    await page.close()
    largest = sorted(sizes, key=lambda one: -sizes[one])[:4]
    told = ", ".join(f"{names[one]} {bodies[one] / 1000:.1f}" for one in largest)
    return Wire(len(sizes), sum(bodies[one] for one in sizes), sum(sizes.values()), told)


async def test_twenty_pages_cost_little(cluster: Cluster, tmp_path: Path, figures: Figures) -> None:
    async with _large(cluster, tmp_path) as (dashboard, crowd), beside(crowd.change()):
        assert dashboard.process is not None
        pid, counts = dashboard.process.popen.pid, [0]
        async with (
            programs.opened(dashboard, await dashboard.link()) as reader,
            contextlib.AsyncExitStack() as stack,
        ):
            await asyncio.sleep(SETTLING)
            before = await _cpu(pid)
            for _ in range(CLIENTS):
                stream = await stack.enter_async_context(reader.stream())
                await stack.enter_async_context(beside(_read_on(stream, counts)))
            await asyncio.sleep(SETTLING)
            counts.append(0)
            written = crowd.written
            during = await _cpu(pid)
            changed = (crowd.written - written) * world.GPUS / SECONDS
    each = (during - before) / CLIENTS
    figures.say(
        f"{CLIENTS} streams of 8,000 GPUs",
        f"{changed:.0f} GPUs changed each second, {counts[1] / CLIENTS / SECONDS / 1000:.1f} KB a second to each; "
        f"CPU of the dashboard {before / 10:.1f} % of a core without streams, {during / 10:.1f} % with them: "
        f"{max(each, 0.0):.2f} ms per client and second",
    )
    assert counts[1] > CLIENTS * SECONDS * 500  # a message a second for each


async def _cpu(pid: int) -> float:
    """Milliseconds a second."""
    before = process.cpu_seconds_now(pid)
    await asyncio.sleep(SECONDS)
    return (process.cpu_seconds_now(pid) - before) * 1000 / SECONDS


async def _read_on(stream: aiohttp.StreamReader, counts: list[int]) -> None:
    """Adds the bytes that come to the last count."""
    while data := await stream.readany():
        counts[-1] += len(data)
