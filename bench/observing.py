"""`gpushare node` with everything on: sampling, figures of containers, GPUNode, Prometheus, InfluxDB.

The real program with its command line, through NVIDIA's binding: eight GPUs with forty processes in eighty containers,
whose figures change in each pass. The driver is the stand-in of the tests, and a part of the cost is its own. A folder
plays the /proc of the node. The API server and a database that takes everything are in this process.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import aiohttp
from aiohttp import web

from bench import world
from bench.process import cpu_seconds, resident_mb_peak
from bench.result import Result
from bench.yardstick import HERE
from gpushare.core.facts import names, vitals
from gpushare.devcluster.apiserver.server import ApiServer
from tests.support.nvml import build, state

NODE = world.node_name(0)
CONTAINERS, PROCESSES = 80, 40
SAMPLE_SECONDS, SCRAPE_SECONDS = 5, 15
SETTLE_SECONDS, MEASURE_SECONDS = 12.0, 45.0
FIRST_PID = 4000


def run() -> Iterator[Result]:
    resident, cpu = asyncio.run(_measure())
    note = f"gpushare node, {world.GPUS} GPUs, {CONTAINERS} containers, everything on"
    yield Result(f"{note}: resident", resident, "MB", 70.0)
    yield Result(f"{note}: CPU a second", cpu, "ms", 3.0, of=fmean)


async def _measure() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with ApiServer(audit=False, nodes_copy_capacity=True) as server, _database() as (database, lines):
            server.load(_objects())
            _make_proc(folder / "proc")
            driver = state.Mock(folder / "gpus")
            _show(driver, 0)
            config = server.write_kubeconfig(folder / "kubeconfig")
            async with _started(config, folder, driver, database) as (pid, page):
                await _live(driver, page, SETTLE_SECONDS)
                before = cpu_seconds(pid)
                async with HERE.looking():
                    await _live(driver, page, MEASURE_SECONDS)
                spent = cpu_seconds(pid) - before
                await _check(server, page, lines)
                return resident_mb_peak(pid), spent / MEASURE_SECONDS * 1000


@contextlib.asynccontextmanager
async def _started(kubeconfig: Path, folder: Path, driver: state.Mock, database: str) -> AsyncIterator[tuple[int, str]]:
    """Its process id, and where its metrics are."""
    library = build.cached()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), state.VARIABLE: str(driver.path)}
    environment["MOCK_NVML_EVENT_STEP_MS"] = "500"  # the real library sleeps until there is an error
    child = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("gpushare")), "node", "--kubeconfig", str(kubeconfig), "--node-name", NODE,
        "--memory-unit=MiB", "--pin=direct", f"--sample-seconds={SAMPLE_SECONDS}", "--proc", str(folder / "proc"),
        "--port=12399", "--metrics-listen=127.0.0.1:9499", "--influx", database, env=environment,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    log = asyncio.create_task(child.communicate())
    try:
        yield child.pid, "http://127.0.0.1:9499/metrics"
    finally:
        if child.returncode is None:
            child.terminate()
        await log


async def _live(driver: state.Mock, page: str, seconds: float) -> None:
    """The figures of all GPUs change in each pass, and Prometheus asks now and then."""
    loop = asyncio.get_running_loop()
    until, turn = loop.time() + seconds, 0
    async with aiohttp.ClientSession() as session:
        while loop.time() < until:
            turn += 1
            _show(driver, turn)
            if turn % (SCRAPE_SECONDS // SAMPLE_SECONDS) == 0:
                async with session.get(page) as answer:
                    await answer.read()
            await asyncio.sleep(SAMPLE_SECONDS)


async def _check(server: ApiServer, page: str, lines: list[int]) -> None:
    """One that does less would cost less."""
    async with aiohttp.ClientSession() as session, session.get(page) as answer:
        text = await answer.text()
    assert text.count("\ngpushare_container_memory_used_bytes{") == CONTAINERS, text[-2000:]
    entry = server.store.get(f"{vitals.PLURAL}.{vitals.GROUP}", NODE)
    assert entry is not None
    assert entry.obj()["status"]["gpus"][0]["containers"][0]["usedMiB"] > 0
    assert sum(lines) > 0


@contextlib.asynccontextmanager
async def _database() -> AsyncIterator[tuple[str, list[int]]]:
    """Where it is, and how many bytes each write had."""
    written: list[int] = []

    async def take(request: web.Request) -> web.Response:
        written.append(len(await request.read()))
        return web.Response(status=204)

    app = web.Application()
    app.add_routes([web.post("/write", take), web.post("/query", take)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", written
    finally:
        await runner.cleanup()


def _show(driver: state.Mock, turn: int) -> None:
    driver.show(*(_gpu(number, turn) for number in range(world.GPUS)))
    a_while_ago = time.time() - 1.0
    os.utime(driver.path, (a_while_ago, a_while_ago))  # the stand-in reads a new file at each call, which costs much


def _gpu(number: int, turn: int) -> str:
    load = 20 + 7 * ((number + turn) % 10)
    pids = range(FIRST_PID + number, FIRST_PID + PROCESSES, world.GPUS)
    processes = (state.process(pid, 512 + 20 * load, load // 5) for pid in pids)
    return state.using(number, world.TOTAL, *processes, util=f"{load} {load // 2}", temp=40 + load // 3)


def _container_id(number: int) -> str:
    return f"{number:064x}"


def _make_proc(proc: Path) -> None:
    """As much of the node's /proc as is read: whose a process is."""
    own = proc / "self"
    (own / "ns").mkdir(parents=True)
    (own / "ns" / "pid").symlink_to("pid:[4026531836]")
    (own / "status").write_text("NSpid:\t1\n")
    (own / "cgroup").write_text("0::/\n")
    (proc / "1").mkdir()
    (proc / "1" / "cgroup").write_text("0::/init.scope\n")
    (proc / "net").mkdir()
    for file in ("stat", "meminfo", "net/dev"):
        (proc / file).write_text(Path("/proc", file).read_text())
    for number in range(PROCESSES):
        folder = proc / str(FIRST_PID + number)
        folder.mkdir()
        slice_ = f"kubepods-burstable-pod{_uid(number).replace('-', '_')}.slice"
        path = f"/kubepods.slice/kubepods-burstable.slice/{slice_}/cri-containerd-{_container_id(number)}.scope"
        (folder / "cgroup").write_text(f"0::{path}\n")


def _uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _objects() -> Iterator[dict[str, Any]]:
    bare = world.node(0)
    del bare["metadata"]["annotations"][names.NODE_GPUS]  # to be published
    yield {"apiVersion": "v1", "kind": "Node", **bare}
    for number in range(CONTAINERS):
        item = world.pod(f"team-app-7d9f8c6b5-{number:05d}", 8_000, node=NODE, gpu=number % world.GPUS)
        item["metadata"]["uid"] = _uid(number)
        item["metadata"]["annotations"] = {f"{names.VISIBLE_PREFIX}0": state.uuid(number % world.GPUS)}
        started = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        item["status"]["containerStatuses"] = [
            {"name": "c0", "containerID": f"containerd://{_container_id(number)}", "state": started}
        ]
        yield {"apiVersion": "v1", "kind": "Pod", **item}
