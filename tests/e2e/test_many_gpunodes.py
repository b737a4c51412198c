"""A thousand nodes write what their GPUs do: what that costs the API server and the extender, and that the extender
answers as quickly as without.

Each GPUNode has 8 GPUs and 80 containers. Idle, a node writes once a minute; at most, every ten seconds. Figures are
told; that the extender has all of it, and stays ready, is asserted.
"""

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpushare.core.facts import vitals
from gpushare.gpu.sample import Sample
from gpushare.node.usage import gpunode
from gpushare.node.usage.model import ContainerUse, GpuUse, Usage
from tests.e2e.harness import command_line, gpunodes, shipped, timed
from tests.e2e.harness.cluster import ADMIN
from tests.e2e.harness.figures import Figures, distribution
from tests.e2e.harness.gpunodes import PATH
from tests.e2e.harness.world import World
from tests.support import wait
from tests.support.objects import Object

NODES, GPUS, CONTAINERS = 1000, 8, 10  # containers on each GPU
TOTAL = 16000  # MiB
SAMPLE_SECONDS = 5.0
SECONDS = 10.0  # of each measurement
PHASES = {"no writes": 0.0, "idle": NODES / 60, "all GPUs changing": NODES / 10}  # writes a second
QUESTIONS = 100  # of a scheduler, in each measurement
QUIET_SECONDS = 5.0
CHOOSE_MS = 3.0  # the extender's own time for a thousand nodes, on a machine whose cores all of this shares
KIND = {"apiVersion": f"{vitals.GROUP}/{vitals.VERSION}", "kind": vitals.KIND}
VERSIONS: dict[str, str] = {}  # resource version of each GPUNode, as it was last seen
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
        await _make(world, names)
        measured = {phase: await _measure(world, names, rate) for phase, rate in PHASES.items()}
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


async def _make(world: World, names: list[str]) -> None:
    listed = (await world.api.get("/api/v1/nodes")).body["items"]
    uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in listed}
    owners = {name: {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uids[name]} for name in names}

    async def create(name: str) -> None:
        body = {**KIND, "metadata": {"name": name, "ownerReferences": [owners[name]]}}
        VERSIONS[name] = (await world.api.create(PATH, body))["metadata"]["resourceVersion"]

    await world._all(partial(create, name) for name in names)
    await world._all(partial(_write, world, name, number, 0) for number, name in enumerate(names))


async def _write(world: World, name: str, number: int, turn: int) -> float:
    """As the node part does: the whole status, for the resource version that is known."""
    begun = time.monotonic()
    body = {
        **KIND,
        "metadata": {"name": name, "resourceVersion": VERSIONS[name]},
        "status": _status(name, number, turn),
    }
    answer = await world.api.call("PUT", f"{PATH}/{name}/status", body)
    assert answer.code == 200, answer.body
    VERSIONS[name] = answer.body["metadata"]["resourceVersion"]
    return time.monotonic() - begun


def _status(name: str, number: int, turn: int) -> Object:
    """What the node part writes; with each turn every GPU does something else."""
    now = time.time()
    usage = Usage(name, tuple(_gpu(name, number, gpu, turn) for gpu in range(GPUS)), now, "580.65.06")
    return gpunode.written(gpunode.dated(gpunode.status(usage, (), SAMPLE_SECONDS), None, now))


def _gpu(name: str, number: int, gpu: int, turn: int) -> GpuUse:
    uuid = f"GPU-{name}-{gpu}"  # as the node says it
    containers = tuple(
        ContainerUse(
            "team", f"run-{number}-{gpu}-{i}", f"{number:08}-{gpu:04}-{i:012}", "main",
            granted=1500 << 20, used=(1000 + i) << 20, sm=0.03, pids=(1,),
        )
        for i in range(CONTAINERS)
    )  # fmt: skip
    sample = Sample(
        uuid, gpu, memory_total=TOTAL << 20, memory_used=(12000 + turn % 7 * 200) << 20,
        gpu_util=(number + gpu + turn * 20) % 100, temperature=50 + turn % 5 * 4, temperature_limit=93,
        power=200_000 + turn % 3 * 30_000, power_limit=400_000,
    )  # fmt: skip
    return GpuUse(
        gpu, uuid, "NVIDIA A16", TOTAL << 20, (1500 * CONTAINERS) << 20, sample=sample, containers=containers,
        unattributed=412 << 20, unknown_processes=0,
    )  # fmt: skip


async def _measure(world: World, names: list[str], rate: float) -> Measured:
    writes = round(rate * SECONDS)
    before, begun, spent = await world.metrics(), time.monotonic(), _cpu_seconds(world)
    waited, written = await asyncio.gather(_ask(world, names), _keep_writing(world, names, writes, rate))
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


async def _keep_writing(world: World, names: list[str], writes: int, rate: float) -> list[float]:
    """So many writes, evenly: as the chance of a thousand nodes spreads them."""
    begun, tasks = time.monotonic(), []
    for number in range(writes):
        await asyncio.sleep(max(begun + number / rate - time.monotonic(), 0))
        at = number % NODES
        tasks.append(asyncio.create_task(_write(world, names[at], at, 1 + number // NODES)))
    return await asyncio.gather(*tasks)


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
