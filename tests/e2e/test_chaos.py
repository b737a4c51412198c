"""Everything at once on a real control plane: thousands of pods come and go, the API server fails the extender in
every way, and the extender is killed again and again.

Nothing may be given out twice at any moment, no pod may be bound twice or be forgotten, and nothing may stay taken.
"""

import asyncio
import collections
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy
from tests.e2e.harness import audit, shipped
from tests.e2e.harness.cluster import URL
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.processes import Process
from tests.e2e.harness.world import World, gpus_of
from tests.e2e.test_placing import mixed_pods
from tests.support import pod_watch
from tests.support.objects import Object

SEED = int(os.environ.get("GPUSHARE_CHAOS_SEED", "36"))
NODES, GPUS = 30, [16000] * 4
PODS, STAYING, KILLS = 2000, 100, 10
MOST_WAITING = 200  # more are not made before some are bound: what is tried here is not a long queue
LIFE = (1.0, 3.0)  # seconds
ENDING_SECONDS = 0.3
ALL_BOUND_SECONDS = 400.0  # from the first pod to the last binding; a silent watch costs up to 90
UNHEARD = 504  # the status of a binding whose sender was killed: made or not
SETTLED_SECONDS = 150.0  # a hold of a pod that never came ends after 30, a silent watch after 90

NEVER: list[Object] = [  # by totals all of them would fit
    {"name": "large", "containers": {"main": 20000}, "direct": True},
    {"name": "broad", "containers": {"main": 40000}, "split": 2, "direct": True},
    {"name": "whole", "containers": {"main": 16001}, "direct": True},
]

FAULTS = plan.Plan(
    rates={
        plan.LATENCY: 0.06, plan.TOO_MANY: 0.03, plan.SERVER_ERROR: 0.04, plan.UNAVAILABLE: 0.04, plan.LOST_REPLY: 0.03,
        plan.CONFLICT: 0.02, plan.LATE_WRITE: 0.02,
        plan.WATCH_CUT: 0.2, plan.WATCH_SILENT: 0.1, plan.WATCH_REPEAT: 0.05, plan.WATCH_LATE: 0.05,
    },
    watch_events=(50, 1000),
    watch_seconds=(2.0, 10.0),
)  # fmt: skip


class Count:
    """What is given out, counted at every version of every pod that the API server shows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._charges: dict[str, dict[tuple[str, int], int]] = {}  # by uid
        self.used: collections.Counter[tuple[str, int]] = collections.Counter()
        self.wrongs: list[str] = []
        self.bound: dict[str, str] = {}  # by uid, the node
        self.fullest, self.events = 0.0, 0
        world.watch.listeners.append(self._show)

    def _show(self, type_: str, pod: Object) -> None:
        uid, name, node = pod["metadata"]["uid"], pod["metadata"]["name"], pod_watch.node_of(pod)
        self.events += 1
        over = type_ == "DELETED" or pod["status"]["phase"] in ("Succeeded", "Failed")
        if node and self.bound.setdefault(uid, node) != node:
            self.wrongs.append(f"{name} was bound to {self.bound[uid]} and is on {node} now")
        charges = {(node, gpu): units for gpu, units in gpus_of(pod).items()} if node and not over else {}
        for place, units in self._charges.pop(uid, {}).items():
            self.used[place] -= units
        if not charges:
            return
        self._charges[uid] = charges
        for place, units in charges.items():
            self.used[place] += units
            total = self._world.nodes[node][place[1]]
            self.fullest = max(self.fullest, self.used[place] / total)
            if self.used[place] > total:
                self.wrongs.append(f"{place}: {self.used[place]} of {total} after {name} came")


class Lives:
    """Pods that run end after a moment, some by themselves and some by being deleted."""

    def __init__(self, world: World, tasks: asyncio.TaskGroup, staying: set[str]) -> None:
        self._world, self._tasks, self._staying = world, tasks, staying
        self._begun: set[str] = set()
        self._dice = random.Random(SEED)
        world.watch.listeners.append(self._show)

    def _show(self, type_: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        runs = type_ != "DELETED" and pod["status"]["phase"] == "Running"
        if runs and name not in self._begun and name not in self._staying:
            self._begun.add(name)
            self._tasks.create_task(self._live(f"{self._world.api.pods}/{name}"))

    async def _live(self, path: str) -> None:
        await asyncio.sleep(self._dice.uniform(*LIFE))
        grace = 30  # the kubelet ends it
        if self._dice.random() < 0.5:
            await self._world.api.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
            grace = 0
        await self._world.api.call("DELETE", path, {"gracePeriodSeconds": grace})


class Extender:
    """One that is killed and started again."""

    def __init__(self, world: World, proxy: FaultProxy) -> None:
        self._cluster, self._proxy = world.cluster, proxy
        self._process: Process | None = None

    async def start(self) -> None:
        config = await self._cluster.account_kubeconfig(shipped.NAMESPACE, shipped.EXTENDER, self._proxy.url)
        self._process = await self._cluster.start_extender(kubeconfig=config, ready=False)

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            await self._cluster.processes.end(self._process, number)


@asynccontextmanager
async def _chaos(world: World) -> AsyncIterator[tuple[Extender, FaultProxy]]:
    async with FaultProxy(URL, FAULTS, seed=SEED, ssl=world.cluster.trust()) as proxy:
        extender = Extender(world, proxy)
        await extender.start()
        try:
            yield extender, proxy
        finally:
            await extender.kill(signal.SIGTERM)


async def _arrive(world: World, pods: list[Object], count: Count) -> None:
    created = 0
    while pods:
        room = MOST_WAITING - (created - len(count.bound))
        now, pods = pods[:room], pods[room:]
        await world.make_pods(*now)
        created += len(now)
        await asyncio.sleep(0.05)


async def _kill_now_and_then(extender: Extender, count: Count, dice: random.Random) -> None:
    """Spread over the whole, each while pods are being bound."""
    for number in range(KILLS):
        due = PODS * (number + 1) // (KILLS + 1)
        while len(count.bound) < due:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(dice.uniform(0.0, 0.2))
        await extender.kill()
        await extender.start()


@pytest.mark.alone
async def test_nothing_is_given_out_twice_or_lost_whatever_fails(world: World, figures: Figures) -> None:
    await world.make_nodes(NODES, gpus=GPUS, pin="direct")
    pods = mixed_pods(PODS, direct=True)
    staying = {words["name"] for words in pods[-STAYING:]}
    count, dice, mark = Count(world), random.Random(SEED), world.cluster.audit.mark()
    async with (
        _chaos(world) as (extender, proxy),
        world.cluster.scheduler(),
        world.kubelets(ENDING_SECONDS),
        asyncio.TaskGroup() as tasks,
    ):
        Lives(world, tasks, staying)
        began = time.monotonic()
        await world.make_pods(*NEVER)
        async with asyncio.timeout(ALL_BOUND_SECONDS):
            async with asyncio.TaskGroup() as works:
                works.create_task(_arrive(world, pods, count))
                works.create_task(_kill_now_and_then(extender, count, dice))
            await world.watch.until("every pod bound", lambda: len(count.bound) >= PODS, ALL_BOUND_SECONDS)
        took = time.monotonic() - began
        faults, proxy.plan = collections.Counter(proxy.counts), plan.Plan()
        await proxy.settle()
        await world.watch.until("only those that stay", lambda: len(world.watch.pods) == STAYING + len(NEVER), 60)
        with_pods = await _settled(world, count)
        world.check_capacity()
        for words in NEVER:
            assert not pod_watch.node_of(world.watch.pods[words["name"]]), words
        await world.api.call("DELETE", world.api.pods, {"gracePeriodSeconds": 0})
        await world.watch.until("no pods", lambda: not world.watch.pods, 60)
        assert not any(count.used.values())
        empty = await _settled(world, count)
        metrics = await world.metrics()

    bindings = [request for request in world.requests(mark) if request.kind == "pods/binding"]
    harmed = sum(number for kind, number in faults.items() if kind not in (plan.PASSED, *plan.PER_EVENT))
    figures.say(
        f"{PODS} pods over {NODES} nodes × {len(GPUS)} GPUs, {KILLS} kills, faults in {harmed / _asked(faults):.0%} of "
        f"{_asked(faults)} requests",
        f"{took:.0f} s to the last binding, each bound once; GPUs filled up to {count.fullest:.0%}, counted "
        f"{count.events} times, over-commit {len(count.wrongs)}; inspect was right {with_pods:.1f} s after the last "
        f"had ended, and all was free {empty:.1f} s after all were deleted",
    )
    figures.say("faults", ", ".join(f"{kind} {number}" for kind, number in sorted(faults.items())))
    figures.say("bindings by answer", str(dict(collections.Counter(_code(request) for request in bindings))))
    assert count.wrongs == []
    assert {request.user.username for request in bindings} == {shipped.EXTENDER_USER}
    made = collections.Counter(request.object_ref.name for request in bindings if _code(request) == 201)
    assert set(made.values()) == {1}
    unheard = {request.object_ref.name for request in bindings if _code(request) == UNHEARD}
    assert {words["name"] for words in pods} <= made.keys() | unheard
    assert harmed >= 0.15 * _asked(faults)
    assert [metrics("gpushare_pods", state=state) for state in ("held", "reserved", "bound")] == [0, 0, 0]
    assert metrics("gpushare_memory_granted", unit="MiB") == 0


async def _settled(world: World, count: Count) -> float:
    """Seconds until the extender's view is that of the API objects: a hold of a pod that never came ends by time."""
    began = time.monotonic()
    while (seen := await _inspected(world)) != (due := {place: units for place, units in count.used.items() if units}):
        if time.monotonic() - began > SETTLED_SECONDS:
            raise AssertionError(f"the extender counts {seen}, the API objects are {due}")
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _inspected(world: World) -> dict[tuple[str, int], int]:
    answer = await world.ask("inspect")
    return {
        (node["name"], gpu["id"]): gpu["usedGPU"] for node in answer["nodes"] for gpu in node["devs"] if gpu["usedGPU"]
    }


def _asked(faults: Mapping[str, int]) -> int:
    return sum(number for kind, number in faults.items() if kind not in plan.PER_EVENT)


def _code(request: audit.Request) -> int:
    return request.response_status.code
