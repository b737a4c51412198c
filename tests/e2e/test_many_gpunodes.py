"""A thousand nodes write what their GPUs do: what that costs the API server and the extender, and that the extender
answers as quickly as without.

Each GPUNode has 8 GPUs and 80 containers. Idle, a node writes once a minute; at most, every ten seconds. Figures are
told; that the extender has all of it, and stays ready, is asserted.
"""

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

from tests.e2e.harness import command_line, gpunodes, shipped, timed
from tests.e2e.harness.cluster import ADMIN
from tests.e2e.harness.figures import Figures, distribution
from tests.e2e.harness.gpunodes import PATH
from tests.e2e.harness.world import World
from tests.e2e.harness.written_gpunodes import Doing, WrittenGpuNodes
from tests.support import wait
from tests.support.objects import Object

NODES, GPUS, CONTAINERS = 1000, 8, 10  # containers on each GPU
TOTAL = 16000  # MiB
SECONDS = 10.0  # of each measurement
PHASES = {"no writes": 0.0, "idle": NODES / 60, "all GPUs changing": NODES / 10}  # writes a second
QUESTIONS = 100  # of a scheduler, in each measurement
QUIET_SECONDS = 5.0
CHOOSE_MS = 3.0  # the extender's own time for a thousand nodes, on a machine whose cores all of this shares
WATCHED = ("kube-apiserver", "etcd", "extender")


class Measured(NamedTuple):
    writes: int
    seconds: float
    cpu: dict[str, float]  # milliseconds in all, by program
    choose: float  # milliseconds inside the extender, on average
    waited: list[float]  # seconds, as a scheduler sees it
    written: list[float]  # seconds that a write took


@timed.repeated_once
async def test_a_thousand_gpunodes_are_written_and_the_extender_answers_as_ever(world: World, figures: Figures) -> None:
    names = await world.make_nodes(NODES, gpus=[TOTAL] * GPUS, pin="direct")
    async with gpunodes.installed(world.cluster), world.cluster.extender():
        nodes = WrittenGpuNodes(world, names, [TOTAL] * GPUS, CONTAINERS, _doing)
        await nodes.make()
        measured = {phase: await _measure(world, nodes, rate) for phase, rate in PHASES.items()}
        await _all_are_known(world)
        quiet = await _quiet(world)
        looked = {
            words: await _look(world, *words.split()) for words in ("inspect gpushare", "inspect gpushare -o wide")
        }
    for phase, found in measured.items():
        figures.say(
            f"{NODES} GPUNodes × {GPUS} GPUs × {CONTAINERS} containers, {phase}",
            f"{found.writes / found.seconds:.0f} writes/s; CPU ms a second: "
            + ", ".join(f"{name} {spent / found.seconds:.0f}" for name, spent in found.cpu.items()),
        )
        if found.written:
            figures.say("  a write took", distribution(found.written))
        figures.say(
            "  choose over 1000 nodes", f"{found.choose:.2f} ms inside the extender; {distribution(found.waited)}"
        )
    none, most = measured["no writes"], measured["all GPUs changing"]
    figures.say(
        "  a write of a GPUNode costs, in CPU ms",
        ", ".join(f"{name} {_more(name, none, most, quiet[name]) / most.writes:.2f}" for name in WATCHED),
    )
    figures.say(
        "  kubectl inspect",
        ", ".join(f"{words.partition('gpushare')[2] or 'plain'} {s:.2f} s" for words, s in looked.items()),
    )
    timed.tell(
        figures, "choose while all GPUs change", f"{most.choose:.2f} ms (limit {CHOOSE_MS}), {none.choose:.2f} without",
        in_time=most.choose <= CHOOSE_MS,
    )  # fmt: skip


def _doing(number: int, gpu: int, turn: int) -> Doing:
    """With each turn every GPU does something else."""
    return Doing(12000 + turn % 7 * 200, (number + gpu + turn * 20) % 100, 50 + turn % 5 * 4, 200 + turn % 3 * 30)


async def _measure(world: World, nodes: WrittenGpuNodes, rate: float) -> Measured:
    writes = round(rate * SECONDS)
    before, begun, spent = await world.metrics(), time.monotonic(), _cpu_seconds(world)
    waited, written = await asyncio.gather(_ask(world, list(nodes.nodes)), nodes.keep_writing(writes, rate))
    seconds = time.monotonic() - begun
    cpu = {name: (now - spent[name]) * 1000 for name, now in _cpu_seconds(world).items()}
    after = await world.metrics()
    assert await world.cluster.answers(f"http://127.0.0.1:{shipped.EXTENDER_PORT}/readyz")

    def grown(metric: str) -> float:
        return after(metric, verb="choose") - before(metric, verb="choose")

    choose = grown("gpushare_request_seconds_sum") / grown("gpushare_request_seconds_count")
    return Measured(writes, seconds, cpu, choose * 1000, waited, written)


async def _quiet(world: World) -> dict[str, float]:
    """CPU milliseconds a second of each program while nothing happens."""
    before = _cpu_seconds(world)
    await asyncio.sleep(QUIET_SECONDS)
    return {name: (spent - before[name]) * 1000 / QUIET_SECONDS for name, spent in _cpu_seconds(world).items()}


def _more(name: str, none: Measured, most: Measured, quiet: float) -> float:
    """What the writes cost a program. As many questions are asked in both; what it does anyway goes on for as long as
    it takes."""
    return most.cpu[name] - none.cpu[name] - quiet * (most.seconds - none.seconds)


async def _ask(world: World, names: list[str]) -> list[float]:
    """A scheduler that asks about one pod again and again; the answer never becomes a binding."""
    pod: Object = world.pod_of({"name": "asks", "containers": {"main": 4000}, "direct": True})
    pod["metadata"] |= {"namespace": world.api.namespace, "uid": f"uid-{world.api.namespace}"}
    started, waited = time.monotonic(), []
    for number in range(QUESTIONS):
        await asyncio.sleep(max(started + number * SECONDS / QUESTIONS - time.monotonic(), 0))
        begun = time.monotonic()
        answer = await world.ask("choose", {"Pod": pod, "NodeNames": names})
        waited.append(time.monotonic() - begun)
        assert len(answer["NodeNames"]) == 1, answer
    return waited


async def _all_are_known(world: World) -> None:
    """The last figures of every GPU, in what the extender tells."""
    listed = (await world.api.get(PATH)).body["items"]
    written = {
        (item["metadata"]["name"], gpu["index"]): (gpu["usedMiB"], gpu["utilization"])
        for item in listed
        for gpu in item["status"]["gpus"]
    }
    assert len(written) == NODES * GPUS

    async def shown() -> bool:
        nodes = (await world.ask("inspect"))["nodes"]
        return written == {
            (node["name"], device["id"]): (device.get("usedMiB"), device.get("utilization"))
            for node in nodes
            for device in node["devs"]
        }

    await wait.eventually_asked(shown, "all figures in the extender", 10)


async def _look(world: World, *words: str) -> float:
    """Seconds that a command takes, with columns for what GPUs do if it has some."""
    config = world.cluster.kubeconfig(ADMIN, world.cluster.tokens[ADMIN])
    begun = time.monotonic()
    code, out, _ = await command_line.piped(config, "kubectl", *words)  # may say that it waits for the API server
    assert code == 0
    assert ("UTIL" in out.splitlines()[0]) is ("wide" in words)
    return time.monotonic() - begun


def _cpu_seconds(world: World) -> dict[str, float]:
    """What each program has used so far, to the nanosecond."""
    running = {process.name: process.popen.pid for process in world.cluster.processes.running}
    return {
        name: sum(int(t.read_text().split()[0]) for t in Path(f"/proc/{running[name]}/task").glob("*/schedstat")) / 1e9
        for name in WATCHED
    }
