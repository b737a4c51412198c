"""The demo from beginning to end: everything started in one folder, the story, the checks, and time to play.

Everything it writes is in one temporary folder, which is removed at the end and kept, and named, when a check failed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import aiohttp

from gpushare.ctl.screen import Screen
from gpushare.demo import checks, env_check, nodes, objects
from gpushare.demo.checks import Check
from gpushare.demo.extender import Extender, NotReady
from gpushare.demo.story import STEPS, Story
from gpushare.demo.terminal import Stage
from gpushare.demo.world import TooLong, World
from gpushare.devcluster.cluster import DevCluster
from gpushare.devcluster.nodes import bare_node
from gpushare.devcluster.scheduler import Scheduler
from gpushare.kube.auth import login
from gpushare.obs.errors import INTERRUPTED

FAILED = 1
OPENING = (
    "gpushare demo: {nodes} simulated nodes, {gpus} simulated GPUs; the real extender, the real",
    "gpushare node on each, one with its device plugin. A small stand-in plays",
    "Kubernetes on 127.0.0.1; nothing else here is touched.",
)


def run(screen: Screen, *, once: bool) -> int:
    folder = Path(tempfile.mkdtemp(prefix="gpushare-demo-"))
    nodes.log_to(folder / "nodes.log")
    stage = Stage(screen, hurry=once)
    ended = 0
    try:
        ended = asyncio.run(_demo(folder, stage, stay=stage.moves))
    except (TooLong, NotReady) as error:
        stage.say(f"FAIL  {error}")
        ended = FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        ended = INTERRUPTED
    finally:
        if ended == FAILED:
            stage.say(f"      everything of this run, extender.log and nodes.log: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return ended


async def _demo(folder: Path, stage: Stage, *, stay: bool) -> int:
    began, story_teller = time.monotonic(), asyncio.current_task()
    assert story_teller is not None
    for number in (signal.SIGTERM, signal.SIGHUP):  # whoever ends it: as after Ctrl-C, nothing is left behind
        asyncio.get_running_loop().add_signal_handler(number, story_teller.cancel)
    gpus = sum(len(machine.gpus) for machine in objects.NODES.values())
    stage.say(*(line.format(nodes=len(objects.NODES), gpus=gpus) for line in OPENING), "")
    async with prepared(folder, stage) as (world, story):
        drawing = asyncio.create_task(world.keep_drawing())
        try:
            await story.tell()
        finally:
            drawing.cancel()
        found = await _checked(world, story)
        stage.settle(["", *world.table(), "", *(check.line() for check in found)])
        bad = sum(not check.ok for check in found)
        verdict = f"{len(found)} checks ok" if not bad else f"{bad} of {len(found)} checks FAILED"
        stage.say(f"demo: {STEPS} steps, {verdict}, {time.monotonic() - began:.0f} s")
        if stay and not bad:
            await _until_interrupted(lambda: stage.say("", *_what_next(world.cluster.kubeconfig)))
        return FAILED if bad else 0


@contextlib.asynccontextmanager
async def prepared(folder: Path, stage: Stage) -> AsyncIterator[tuple[World, Story]]:
    """Everything runs, and nothing has happened yet."""
    machines = [bare_node(name, machine.ip, version=machine.kubelet) for name, machine in objects.NODES.items()]
    async with contextlib.AsyncExitStack() as stack:
        kubelets = stack.enter_context(nodes.folders(folder))
        cluster = await stack.enter_async_context(DevCluster(nodes=machines, folder=folder, kubelets=kubelets))
        access = login.load(str(cluster.kubeconfig), None, {}, folder)
        components = await stack.enter_async_context(nodes.running(access, kubelets))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        world = World(cluster, components, session, stage)
        await world.create(objects.namespace(objects.BY_PLUGIN))
        for name in components:
            await world.until(f"the GPUs of {name} published", partial(world.offered, name))
        extender = Extender(cluster.kubeconfig, folder / "extender.log")
        stack.push_async_callback(extender.end)
        await extender.start()
        await stack.enter_async_context(Scheduler(access, extender_url=extender.url))
        yield world, Story(world, extender, stage)


async def _checked(world: World, story: Story) -> list[Check]:
    seen = world.look()
    found = checks.checks(seen, world.worst, world.cluster.server.audit, story.expected, story.staying)
    containers = await env_check.containers(seen, world.cluster.kubelet.logs, world.components)
    return [*found, env_check.check(containers, env_check.tables(seen, world.components))]


def _what_next(kubeconfig: Path) -> list[str]:
    """Lines to play with, as they can be typed here."""
    ours = "gpushare" if shutil.which("gpushare") else os.path.relpath(Path(sys.executable).with_name("gpushare"))
    lines = [
        "The cluster stays up until Ctrl-C. In another terminal:",
        f"  export KUBECONFIG={kubeconfig}",
    ]
    if shutil.which("kubectl"):
        inspect = "kubectl inspect gpushare" if shutil.which("kubectl-inspect-gpushare") else f"{ours} inspect"
        return [
            *lines,
            f"  kubectl get pods -o wide; {inspect} -w",
            "  kubectl scale deployment web --replicas=5    # one more fits, one waits",
            f"  kubectl logs chat -c main -n {objects.BY_PLUGIN}       # env from the device plugin",
        ]
    return [*lines, f"  {ours} inspect -w", f"  {ours} why llm", "(kubectl works here, too, once it is installed)"]


async def _until_interrupted(say: Callable[[], None]) -> None:
    """From here on Ctrl-C is the way to end, and no accident."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the last: its terminal was closed
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    say()
    await stop.wait()
