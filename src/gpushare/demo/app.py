"""The demo from beginning to end: start everything, tell the story, check what it claims, stay up to be tried.

All files are in one temporary folder. It is removed at the end; when a check fails it is kept, and its name is printed.
"""

import asyncio
import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path

import aiohttp

from gpushare.core.admission import pinning
from gpushare.ctl.screen import Screen
from gpushare.demo import afterwards, checks, env_check, next_steps, nodes, objects
from gpushare.demo.checks import Check
from gpushare.demo.programs import Dashboard, Extender, NotReady
from gpushare.demo.story import STEPS, Story
from gpushare.demo.terminal import Terminal
from gpushare.demo.world import TooLong, World
from gpushare.devcluster.cluster import DevCluster
from gpushare.devcluster.kubelet import kubelet
from gpushare.devcluster.nodes import bare_node
from gpushare.devcluster.scheduler import Scheduler
from gpushare.gpu.simulated import Simulated
from gpushare.kube.auth import login
from gpushare.obs.errors import INTERRUPTED

FAILED = 1
OPENING = (
    "gpushare demo: {nodes} simulated nodes, {gpus} simulated GPUs; the real extender, the real",
    "gpushare node on each: one with its device plugin, one selling nvidia.com/gpu.",
    "A small stand-in plays Kubernetes on 127.0.0.1; nothing else here is touched.",
)


def run(screen: Screen, *, once: bool) -> int:
    folder = Path(tempfile.mkdtemp(prefix="gpushare-demo-"))
    nodes.log_to(folder / "nodes.log")
    terminal = Terminal(screen, hurry=once)
    code = 0
    try:
        code = asyncio.run(_demo(folder, terminal, stay=terminal.animated))
    except (TooLong, NotReady) as error:
        terminal.say(f"FAIL  {error}")
        code = FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = INTERRUPTED
    finally:
        if code == FAILED:
            terminal.say(f"      the files of this run, with extender.log and nodes.log: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return code


async def _demo(folder: Path, terminal: Terminal, *, stay: bool) -> int:
    began, this_task = time.monotonic(), asyncio.current_task()
    assert this_task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):  # they end it as Ctrl-C does: nothing is left behind
        asyncio.get_running_loop().add_signal_handler(number, this_task.cancel)
    gpus = sum(len(machine.gpus) for machine in objects.NODES.values())
    terminal.say(*(line.format(nodes=len(objects.NODES), gpus=gpus) for line in OPENING), "")
    gpus_of = nodes.all_gpus()
    async with prepared(folder, terminal, gpus_of) as (world, story), running_dashboard(world, folder) as dashboard:
        drawing = asyncio.create_task(world.keep_drawing())
        try:
            await story.tell()
        finally:
            drawing.cancel()
        await dashboard.start()
        results = await _checks(world, story, dashboard)
        terminal.settle(["", *world.table(), "", *(check.line() for check in results)])
        failed = sum(not check.ok for check in results)
        verdict = f"{failed} of {len(results)} checks FAILED" if failed else f"{len(results)} checks ok"
        terminal.say(f"demo: {STEPS} steps, {verdict}, {time.monotonic() - began:.0f} s")
        if stay and not failed:
            await afterwards.begin(world)
            lines = next_steps.lines(world.cluster.kubeconfig, await dashboard.invited())
            await until_interrupted(lambda: terminal.say("", *lines), afterwards.go_on(world, gpus_of))
        return FAILED if failed else 0


@contextlib.asynccontextmanager
async def running_dashboard(world: World, folder: Path) -> AsyncIterator[Dashboard]:
    """It does not run yet, and is ended with the block."""
    dashboard = Dashboard(world.cluster.kubeconfig, folder / "dashboard.log")
    try:
        yield dashboard
    finally:
        await dashboard.end()


@contextlib.asynccontextmanager
async def prepared(
    folder: Path, terminal: Terminal, gpus: Mapping[str, Simulated] | None = None, moment: float = kubelet.MOMENT
) -> AsyncIterator[tuple[World, Story]]:
    """Everything runs and no pod exists yet. `moment`: seconds a container takes to start."""
    machines = [bare_node(name, machine.ip, version=machine.kubelet) for name, machine in objects.NODES.items()]
    async with contextlib.AsyncExitStack() as stack:
        kubelets = stack.enter_context(nodes.folders(folder))
        cluster = await stack.enter_async_context(
            DevCluster(nodes=machines, folder=folder, kubelets=kubelets, moment=moment, pin_nvidia=True)
        )
        access = login.load(str(cluster.kubeconfig), None, {}, folder)
        components = await stack.enter_async_context(nodes.running(access, kubelets, gpus or nodes.all_gpus()))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        world = World(cluster, components, session, terminal)
        await world.create(objects.namespace(objects.BY_PLUGIN))
        await world.create(objects.namespace(objects.BY_COUNT, dict([pinning.NVIDIA_LEFT])))
        for name in components:
            await world.until(f"the GPUs of {name} published", partial(world.offered, name))
        extender = Extender(cluster.kubeconfig, folder / "extender.log")
        stack.push_async_callback(extender.end)
        await extender.start()
        await stack.enter_async_context(Scheduler(access, extender_url=extender.url))
        yield world, Story(world, extender, terminal)


async def _checks(world: World, story: Story, dashboard: Dashboard) -> list[Check]:
    shown = await dashboard.shown()
    snapshot = world.look()
    results = checks.checks(snapshot, world.fullest, world.cluster.server.audit, story.expected, story.staying)
    logs = world.cluster.kubelet.logs
    containers = await env_check.containers(snapshot, logs, world.components)
    by_memory = env_check.check(containers, env_check.tables(snapshot, world.components))
    return [*results, by_memory, env_check.check_sold(snapshot, logs), checks.dashboard(shown, snapshot)]


async def until_interrupted(say: Callable[[], None], meanwhile: Coroutine[None, None, None]) -> None:
    """From here on Ctrl-C is the normal end, with exit code 0."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    going_on = asyncio.create_task(meanwhile)
    say()
    await stop.wait()
    going_on.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await going_on
