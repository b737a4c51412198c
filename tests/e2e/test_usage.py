"""What containers use of their GPUs, on a real kubelet: whose a process is, and what happens if it is too much.

The stand-in for NVIDIA's library is told the ids of processes in real containers, as the driver knows them. The node
part is the one of deploy/, with the two lines of its manifest that are off by default switched on. What it finds is
read where people and programs read it: on its page of metrics, and in the GPUNode.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping

import aiohttp
import pytest
from prometheus_client import parser

from gpushare.node.usage.eviction import BUDGET, EVICTED, KEPT
from gpushare.node.usage.overuse_events import ENDED, OVER_USE
from tests.e2e.harness import events, gpunodes, shipped
from tests.e2e.harness.cluster import NODE, Cluster
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.installation import GUARD, OWN_NODE, PIN, Installation, for_module, held
from tests.e2e.harness.kubelet import Node
from tests.e2e.harness.node_world import NodeWorld, is_ending, is_running, open_world, statuses
from tests.support import wait
from tests.support.api_client import Api
from tests.support.nvml import state
from tests.support.objects import Object

GPUS = [16000, 16000]
MIB = 1 << 20
SECONDS, GRACE = 1.0, 3.0
WARNS = (f"--sample-seconds={SECONDS:g}", f"--overuse-grace={GRACE:g}")
EVICTS = (*WARNS, "--on-overuse=evict")
SWITCHED_ON = ("hostPID: true", "pods/eviction")
PATIENCE = 30.0
STAYS_SECONDS = 5.0  # in which nothing more happens
OUTSIDE = 1  # the first process of the machine is in no pod
ASKING = (("web", "proxy"), ("web", "main"), ("web", "helper"), ("other", "main"))
USED, UNATTRIBUTED = "gpushare_container_memory_used_bytes", "gpushare_gpu_memory_unattributed_bytes"
OVER = "gpushare_container_overuse_bytes"
Amounts = Mapping[tuple[str, str], int]  # MiB, by pod and container


@pytest.fixture(scope="module")
def _gpunodes(cluster: Cluster) -> Iterator[None]:
    yield from held(gpunodes.installed(cluster))


@pytest.fixture(scope="module")
def installation(node: Node, _gpunodes: None) -> Iterator[Installation]:
    yield from for_module(
        node, GPUS, ("node-ds.yaml",), policies=(PIN, GUARD, OWN_NODE), flags=WARNS, switched_on=SWITCHED_ON
    )


@pytest.fixture
async def world(installation: Installation, api: Api) -> AsyncIterator[NodeWorld]:
    """Over-use is told."""
    await installation.have_flags(WARNS)
    async with _opened(installation, api) as world:
        yield world


@pytest.fixture
async def evicting(installation: Installation, api: Api) -> AsyncIterator[NodeWorld]:
    """Over-use ends a pod."""
    await installation.have_flags(EVICTS)
    async with _opened(installation, api) as world:
        yield world


@contextlib.asynccontextmanager
async def _opened(installation: Installation, api: Api) -> AsyncIterator[NodeWorld]:
    await installation.have(GPUS, "MiB")
    async with open_world(installation, api) as world:
        try:
            yield world
        finally:
            installation.use()


# Whose a process is


async def test_processes_are_of_their_pod_and_container_after_a_restart_too(world: NodeWorld, figures: Figures) -> None:
    sidecar = {"proxy": {"mem": 500, "sidecar": True}}
    await world.run(
        {"name": "web", "init": sidecar, "containers": {"main": 6000, "helper": 2000, "plain": None}},
        {"name": "other", "containers": {"main": 3000}},
    )
    (gpu,) = {await _gpu(world, pod, container) for pod, container in ASKING}
    pids = {(pod, container): await _pid(world, pod, container) for pod, container in (*ASKING, ("web", "plain"))}
    amounts = {who: 100 * (number + 1) for number, who in enumerate(pids)}
    told = [(gpu, state.process(pids[who], amounts[who], 10)) for who in pids]
    world.installation.use(*told, (gpu, state.process(OUTSIDE, 700, 5)))
    began = time.monotonic()
    given = {who: amounts[who] for who in ASKING}
    await _until_used(world, given)
    figures.say("use of containers is shown after", f"{time.monotonic() - began:.1f} s, sampled every {SECONDS:g} s")
    nobodys = 700 + amounts["web", "plain"]  # that container was given no GPU
    assert await _unattributed(world, gpu) == nobodys
    await _until_in_gpunode(world, gpu, given, unattributed=nobodys, unknown_processes=2)
    before = pids["other", "main"]
    await world.kill_container("other")
    again = await _pid(world, "other", "main")
    assert again != before
    world.installation.use((gpu, state.process(again, 1234, 10)), (gpu, state.process(before, 50, 10)))
    given = dict.fromkeys(given, 0) | {("other", "main"): 1234}
    await _until_used(world, given)
    assert await _unattributed(world, gpu) == 50  # a process that is gone
    await _until_in_gpunode(world, gpu, given, unattributed=50, unknown_processes=1)


async def test_without_the_nodes_processes_the_use_of_containers_is_absent_and_not_0(world: NodeWorld) -> None:
    await world.run({"name": "web", "containers": {"main": 6000}})
    gpu = await _gpu(world, "web", "main")
    world.installation.use((gpu, state.process(await _pid(world, "web", "main"), 500, 10)))
    await _until_used(world, {("web", "main"): 500})
    with _switched_off(world.installation):
        await world.installation.give_flags(WARNS)
        shown = await wait.eventually_asked(lambda: _shown(world, "DCGM_FI_DEV_FB_USED"), "use of the GPU", PATIENCE)
        assert max(shown.values()) == 500
        assert await _shown(world, USED) == {}
        assert await _shown(world, UNATTRIBUTED) == {}
    await world.installation.give_flags(WARNS)
    await _until_used(world, {("web", "main"): 500})


# Over-use


async def test_over_use_gets_an_event_that_names_the_neighbours_and_another_when_it_ends(
    world: NodeWorld, figures: Figures
) -> None:
    await _two(world)
    gpu, pid = await _gpu(world, "greedy", "main"), await _pid(world, "greedy", "main")
    world.installation.use((gpu, state.process(pid, 7000, 90)))
    began = time.monotonic()
    message = await events.until_event(world, "greedy", OVER_USE)
    took = time.monotonic() - began
    assert message == (
        f"container main uses 7000 MiB of GPU {gpu} on {NODE}, and asked for 6000 MiB; "
        f"pods at risk: {world.api.namespace}/modest"
    )
    figures.say("event of over-use after", f"{took:.1f} s, of which {GRACE:g} s are grace")
    assert took <= GRACE + 2 * SECONDS + 1.0, "one second for the way of an event"
    assert [event["reason"] for event in await events.about(world, "modest") if "OverUse" in event["reason"]] == []
    assert list((await _shown(world, OVER)).values()) == [1000 * MIB]
    await _until_condition(world, "OverUse", "True", f"{world.api.namespace}/greedy (main, GPU {gpu})")
    world.installation.use((gpu, state.process(pid, 6200, 90)))  # within the tolerance
    await events.until_event(world, "greedy", ENDED)
    assert is_running(world.watch.pods["greedy"])
    assert await _shown(world, OVER) == {}


async def test_a_disruption_budget_of_0_keeps_the_pod(evicting: NodeWorld) -> None:
    """Before the next test: after an eviction its GPU is left alone for a minute."""
    await _two(evicting)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all"},
              "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "greedy"}}}}  # fmt: skip
    where = ("--namespace", evicting.api.namespace)
    await evicting.cluster.kubectl("apply", *where, "-f", "-", given=json.dumps(budget))
    mark = evicting.cluster.audit.mark()
    await _greed(evicting)
    assert await events.until_event(evicting, "greedy", KEPT) == BUDGET
    await asyncio.sleep(STAYS_SECONDS)
    for pod in ("greedy", "modest"):
        assert is_running(evicting.watch.pods[pod])
        assert not is_ending(evicting.watch.pods[pod])
    assert _evictions(evicting, mark) == [("greedy", 429)]


async def test_evicting_ends_exactly_that_pod_and_its_neighbours_run_on(evicting: NodeWorld, figures: Figures) -> None:
    await _two(evicting)
    before = evicting.containers_of("modest")
    uids = {name: pod["metadata"]["uid"] for name, pod in evicting.watch.pods.items()}
    mark, began = evicting.cluster.audit.mark(), time.monotonic()
    gpu = await _greed(evicting)
    await evicting.watch.until("evicted", lambda: "greedy" not in evicting.watch.pods, PATIENCE)
    figures.say("a pod is evicted and gone after", f"{time.monotonic() - began:.1f} s, {GRACE:g} s are grace")
    message = await events.until_event(evicting, "greedy", EVICTED)
    assert message == f"evicted: container main used 7000 MiB of GPU {gpu} on {NODE}, and asked for 6000 MiB"
    (event,) = [event for event in await events.about(evicting, "greedy") if event["reason"] == EVICTED]
    assert event["involvedObject"]["uid"] == uids["greedy"]
    await asyncio.sleep(STAYS_SECONDS)
    assert _evictions(evicting, mark) == [("greedy", 201)]
    assert evicting.watch.pods.keys() == {"modest"}
    assert evicting.watch.pods["modest"]["metadata"]["uid"] == uids["modest"]
    assert is_running(evicting.watch.pods["modest"])
    assert evicting.containers_of("modest") == before


async def _two(world: NodeWorld) -> None:
    """On one GPU: one that will use too much, and its neighbour."""
    await world.run(
        {"name": "greedy", "containers": {"main": 6000}, "labels": {"app": "greedy"}},
        {"name": "modest", "containers": {"main": 3000}},
    )
    assert await _gpu(world, "greedy", "main") == await _gpu(world, "modest", "main")


async def _greed(world: NodeWorld) -> int:
    """On which GPU."""
    gpu, pid = await _gpu(world, "greedy", "main"), await _pid(world, "greedy", "main")
    neighbour = await _pid(world, "modest", "main")
    world.installation.use((gpu, state.process(pid, 7000, 90)), (gpu, state.process(neighbour, 2900, 10)))
    return gpu


def _evictions(world: NodeWorld, mark: int) -> list[tuple[str, int]]:
    """That were asked for since then, with the API server's answer."""
    asked = [request for request in world.requests(mark) if request.kind == "pods/eviction"]
    return [(request.object_ref.name, request.response_status.code) for request in asked]


@contextlib.contextmanager
def _switched_off(installation: Installation) -> Iterator[None]:
    """The manifest as it is shipped."""
    before, installation.switched_on = installation.switched_on, ()
    try:
        yield
    finally:
        installation.switched_on = before


# Looking


async def _gpu(world: NodeWorld, pod: str, container: str) -> int:
    (uuid,) = await world.sees(pod, container)
    return (await world.installation.uuids()).index(uuid)


def _status(world: NodeWorld, pod: str, container: str) -> Object:
    shown = world.watch.pods[pod]
    both = [*statuses(shown), *shown["status"].get("initContainerStatuses", ())]
    return next(status for status in both if status["name"] == container)


async def _pid(world: NodeWorld, pod: str, container: str) -> int:
    return await world.node.machine.pid_of(_status(world, pod, container)["containerID"])


async def _until_used(world: NodeWorld, wanted: Amounts) -> None:
    """These, and no others."""

    async def shown() -> bool:
        used = await _shown(world, USED)
        return {(dict(labels)["pod"], dict(labels)["container"]): int(b) // MIB for labels, b in used.items()} == wanted

    try:
        await wait.eventually_asked(shown, f"use is {wanted}", PATIENCE)
    except AssertionError as late:
        raise AssertionError(f"{late}; it is {await _shown(world, USED)}") from None


async def _unattributed(world: NodeWorld, gpu: int) -> int:
    found = await _shown(world, UNATTRIBUTED)
    (used,) = (value for labels, value in found.items() if dict(labels)["gpu"] == str(gpu))
    return int(used) // MIB


async def _until_in_gpunode(
    world: NodeWorld, gpu: int, wanted: Amounts, *, unattributed: int, unknown_processes: int
) -> None:
    """Of this GPU, exactly this."""
    found: object = None

    async def said() -> bool:
        nonlocal found
        shown = (await _status_of_gpunode(world)).get("gpus", [{}] * len(GPUS))[gpu]
        used = {(one["pod"], one["container"]): one.get("usedMiB") for one in shown.get("containers", ())}
        found = (used, shown.get("unattributedMiB"), shown.get("unknownProcesses"))
        return found == (wanted, unattributed, unknown_processes)

    try:
        await wait.eventually_asked(said, f"the GPUNode says {wanted}", PATIENCE)
    except AssertionError as late:
        raise AssertionError(f"{late}; it says {found}") from None


async def _until_condition(world: NodeWorld, kind: str, status: str, saying: str) -> None:
    async def said() -> bool:
        conditions = (await _status_of_gpunode(world)).get("conditions", ())
        return any(one["type"] == kind and one["status"] == status and saying in one["message"] for one in conditions)

    await wait.eventually_asked(said, f"{kind} is {status} in the GPUNode: {saying}", PATIENCE)


async def _status_of_gpunode(world: NodeWorld) -> Object:
    answer = await world.api.get(f"{gpunodes.PATH}/{NODE}")
    return dict(answer.body.get("status", {})) if answer.code == 200 else {}


async def _shown(world: NodeWorld, name: str) -> dict[frozenset[tuple[str, str]], float]:
    """The samples of that name, by their labels. Empty: there is none."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{shipped.NODE_PORT}/metrics") as response,
    ):
        text = await response.text()
    return {
        frozenset(sample.labels.items()): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }
