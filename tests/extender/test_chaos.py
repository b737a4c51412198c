"""Everything at once: 500 pods, 16 schedulers' worth of calls, every fault of the API server, and kill -9.

The extender is a process; the API server counts at every resource version what is given out. Nothing may be given
out twice, nothing may stay taken, no pod may be bound twice or be forgotten, and no reply may be untrue.
"""

import asyncio
import contextlib
import json
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy
from tests.extender.auditor import Auditor
from tests.extender.scheduler import Scheduler
from tests.support import embedded_objects, wait
from tests.support.embedded_objects import MERGE, PODS, Object
from tests.support.extender_process import Extender

SEED = int(os.environ.get("GPUSHARE_CHAOS_SEED", "20261115"))
PODS_IN_ALL = 500
AGAIN = 40  # of them, a second time
LAST = 40  # pods that stay, so that there is something to compare in the end
WORKERS = 16
KILLS = 5
ARRIVALS = 50  # pods a second
LIFE = (0.3, 2.0)  # seconds
BOUND_WITHIN = 120.0  # seconds after the last has come; the cores may be busy with other things

NODES = [
    embedded_objects.node("direct-a", 16000, 16000),
    embedded_objects.node("direct-b", 24000, 11000),
    embedded_objects.node("direct-c", 40000, 40000, 40000, 40000),
    embedded_objects.node("direct-d", 16000, 16000, 16000, 16000, 8000, 8000, 8000, 8000),
    embedded_objects.node("plugin-a", 16000, 16000, pin="plugin"),
    embedded_objects.node("plugin-b", 24000, 12000, 12000, pin="plugin"),
]

NEVER = {  # too large, and not memory at all
    "large": embedded_objects.pod("large", 50000),
    "broad": embedded_objects.pod("broad", 32000, split=16),
    "bytes": embedded_objects.pod("bytes", "4Gi"),
}

FAULTS = plan.Plan(
    rates={
        plan.LATENCY: 0.05, plan.CONFLICT: 0.03, plan.TOO_MANY: 0.02, plan.SERVER_ERROR: 0.03,
        plan.UNAVAILABLE: 0.03, plan.LOST_REPLY: 0.03, plan.LATE_WRITE: 0.02,
        plan.WATCH_CUT: 0.4, plan.WATCH_SILENT: 0.2, plan.WATCH_REPEAT: 0.1, plan.WATCH_LATE: 0.1,
    },
    watch_events=(10, 200),
    watch_seconds=(0.5, 5.0),
)  # fmt: skip

SETTINGS = {
    "gpushare.kube.client.SILENCE": 0.5,  # seconds; else a silent watch is noticed after the test
    "gpushare.kube.client.PATIENCE": 1.5,
    "gpushare.kube.events.RATE": 200.0,
}


def mixed_pod(dice: random.Random, name: str) -> Object:
    """Every shape there is."""
    direct = dice.random() < 0.75
    amount = dice.choice((500, 1000, 2000, 3000, 4000, 7000, 9000))
    match dice.choices(("one", "two", "split", "whole", "init", "sidecar"), (50, 15, 12, 6, 10, 7))[0]:
        case "two":
            return embedded_objects.pod(name, amount, dice.choice((1000, 6000, 10000)), direct=direct)
        case "split":
            gpus = dice.choice((2, 2, 4) if direct else (2, 3))
            return embedded_objects.pod(name, amount * gpus, split=gpus, direct=direct)
        case "whole":
            return embedded_objects.pod(name, whole=dice.choice((1, 1, 2)), direct=direct)
        case "init":
            return embedded_objects.pod(name, amount, init=[dice.choice((1000, 8000))], direct=direct)
        case "sidecar":
            return embedded_objects.pod(name, amount, sidecars=[1000], init=[2000], direct=direct)
    return embedded_objects.pod(name, amount, direct=direct)


class Kubelet:
    """Lets bound pods run and end. Some come again at once under their name, as a StatefulSet's do."""

    def __init__(self, server: ApiServer, dice: random.Random, add: Callable[[Object], None]) -> None:
        self._server, self._dice, self._add = server, dice, add
        self.staying: set[str] = set()
        self.again: dict[str, Object] = {}
        self._lives: set[asyncio.Task[None]] = set()

    def start(self, pod: Object) -> None:
        task = asyncio.create_task(self._live(pod["metadata"]["name"]))
        self._lives.add(task)
        task.add_done_callback(self._lives.discard)

    async def rest(self) -> None:
        """Until all have ended, or are to stay."""
        while self._lives:
            await asyncio.gather(*self._lives)

    async def _live(self, name: str) -> None:
        await asyncio.sleep(self._dice.uniform(0.0, 0.1))
        embedded_objects.set_status(self._server, name, phase="Running")
        assigned = {"metadata": {"annotations": {names.ALIYUN_ASSIGNED: "true"}}}
        self._server.registry.patch(PODS, "default", name, MERGE, assigned)
        if name in self.staying:
            return
        await asyncio.sleep(self._dice.uniform(*LIFE))
        if self._dice.random() < 0.5:
            embedded_objects.set_status(self._server, name, phase=self._dice.choice(("Succeeded", "Failed")))
            await asyncio.sleep(0.2)
        else:
            embedded_objects.delete(self._server, name, grace=30)
            await asyncio.sleep(self._dice.uniform(0.05, 0.3))  # it still holds its memory
        embedded_objects.delete(self._server, name)
        if name in self.again:
            self._add(self.again.pop(name))


async def _arrivals(add: Callable[[Object], None], pods: list[Object], dice: random.Random) -> None:
    for made in pods:
        add(made)
        await asyncio.sleep(dice.expovariate(ARRIVALS))


async def _kills(extender: Extender, scheduler: Scheduler, dice: random.Random) -> None:
    """Each while bindings are under way, if there are any left."""
    for _ in range(KILLS):
        await asyncio.sleep(dice.uniform(1.2, 2.0))
        with contextlib.suppress(AssertionError):
            await wait.eventually(lambda: scheduler.binding > 0, "a binding under way", 2.0)
        scheduler.generation += 1
        await extender.kill()
        await extender.start()


async def _weather(server: ApiServer, extender: Extender, scheduler: Scheduler, dice: random.Random) -> None:
    """Nodes are drained or go and come back, the history is cut off, the extender stands still for a moment."""
    while True:
        await asyncio.sleep(dice.uniform(0.5, 1.5))
        node = dice.choice(NODES)
        match dice.choice(("drain", "leave", "forget", "pause")):
            case "drain":
                scheduler.node_changes(node["metadata"]["name"])
                _publish(server, node, state="draining")
                try:
                    await asyncio.sleep(0.3)
                finally:
                    _publish(server, node, state="ready")
            case "leave":
                scheduler.node_changes(node["metadata"]["name"])
                server.registry.delete(embedded_objects.NODES, "", node["metadata"]["name"], {})
                try:
                    await asyncio.sleep(0.3)
                finally:
                    embedded_objects.create(server, node)
            case "forget":
                server.store.expire_history()  # every watch that is cut must list again
            case "pause":
                with extender.standing_still():
                    await asyncio.sleep(0.7)


def _publish(server: ApiServer, node: Object, **changed: str) -> None:
    published = json.loads(node["metadata"]["annotations"][names.NODE_GPUS]) | changed
    notes = {"metadata": {"annotations": {names.NODE_GPUS: json.dumps(published)}}}
    server.registry.patch(embedded_objects.NODES, "", node["metadata"]["name"], MERGE, notes)


async def _impatience(server: ApiServer, scheduler: Scheduler, dice: random.Random, given_up: set[str]) -> None:
    """Now and then a waiting pod is deleted by its owner."""
    while True:
        await asyncio.sleep(0.7)
        if able := sorted(scheduler.waiting.keys() - NEVER):
            name = dice.choice(able)
            del scheduler.waiting[name]
            given_up.add(name)
            embedded_objects.delete(server, name)


@contextlib.asynccontextmanager
async def _beside(*works: Callable[[], Awaitable[Any]]) -> Any:
    tasks = [asyncio.ensure_future(work()) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_nothing_is_given_out_twice_or_lost_whatever_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(SEED)
    ending = [mixed_pod(dice, f"p-{number:03}") for number in range(PODS_IN_ALL - LAST)]
    ending[50:50] = NEVER.values()
    staying = [embedded_objects.pod(f"s-{number:02}", 1000, 500, direct=number % 4 != 0) for number in range(LAST)]
    async with (
        ApiServer(bookmark_seconds=0.5, history=500) as server,
        FaultProxy(server.url, FAULTS, seed=SEED) as proxy,
        Extender(proxy.write_kubeconfig(tmp_path / "kubeconfig"), settings=SETTINGS) as extender,
    ):
        auditor, scheduler = Auditor(server), Scheduler(server, extender, dice)
        created: set[str] = set()

        def add(made: Object) -> None:
            created.add(embedded_objects.create(server, made)["metadata"]["uid"])
            scheduler.add(made["metadata"]["name"])

        kubelet = Kubelet(server, dice, add)
        kubelet.staying = {pod["metadata"]["name"] for pod in staying}
        kubelet.again = {pod["metadata"]["name"]: pod for pod in dice.sample(ending, AGAIN)}
        for node in NODES:
            auditor.node(node)
        auditor.on_bound, auditor.on_change = kubelet.start, scheduler.changed
        given_up: set[str] = set()
        began = asyncio.get_running_loop().time()

        async with _beside(*[scheduler.work] * WORKERS):
            async with _beside(
                lambda: _arrivals(add, ending, dice),
                lambda: _kills(extender, scheduler, dice),
                lambda: _weather(server, extender, scheduler, dice),
                lambda: _impatience(server, scheduler, dice, given_up),
            ) as (arrivals, kills, *_):
                await asyncio.gather(arrivals, kills)
            kubelet.again.clear()
            await _all_bound(server, scheduler, auditor, extender)
            await _arrivals(add, staying, dice)
            faults, proxy.plan = dict(proxy.counts), plan.Plan()
            await proxy.settle()
            await _all_bound(server, scheduler, auditor, extender)
        seconds = asyncio.get_running_loop().time() - began
        with capsys.disabled():
            print(f"\n{len(auditor.bindings)} bindings in {seconds:.0f} s, {KILLS} kills, {len(given_up)} given up;")
            print(f"  GPUs filled up to {auditor.fullest:.0%} of their memory, counted {auditor.checks} times")
            print(f"  faults: {_listed(faults)}")
            print(f"  scheduler: {_listed(scheduler.counts)}")

        assert auditor.wrongs == []
        assert scheduler.lies == []
        assert len(created) >= PODS_IN_ALL
        assert len(auditor.bindings) == len(created) - len(given_up) - len(NEVER)
        bound = [write for write in server.audit if write.path.endswith("/binding") and write.code == 201]
        assert len(bound) == len(auditor.bindings)

        await kubelet.rest()
        await extender.ready()
        await _settled(extender, auditor)
        assert any(used for gpus in (await extender.inspect()).values() for used, _ in gpus)
        for key in list(server.store.shelf("pods").entries):
            embedded_objects.delete(server, key.partition("/")[2])
        await _settled(extender, auditor)
        metrics = await extender.metrics()
        assert metrics['gpushare_memory_granted{unit="MiB"}'] == 0
        assert [metrics[f'gpushare_pods{{state="{state}"}}'] for state in ("held", "reserved", "bound")] == [0, 0, 0]


async def _all_bound(server: ApiServer, scheduler: Scheduler, auditor: Auditor, extender: Extender) -> None:
    """No pod waits that could run: only a wake-up of ours makes the scheduler ask again."""

    def unbound() -> set[str]:
        pods = [entry.obj() for entry in server.store.shelf("pods").entries.values()]
        return {pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")} - NEVER.keys()

    try:
        await wait.eventually(lambda: not unbound(), "every pod bound", BOUND_WITHIN)
    except AssertionError:
        waiting = {name: scheduler.waiting.get(name, "is being tried") for name in sorted(unbound())}
        raise AssertionError(f"{waiting}; used {auditor.used()}; {extender.logged()[-3000:]}") from None


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))


async def _settled(extender: Extender, auditor: Auditor) -> None:
    """The extender's view is the one of the API objects, once holds of pods that will not come are over."""

    async def same() -> bool:
        return await extender.inspect() == auditor.used()

    await wait.eventually_asked(same, "the extender counts what the API objects are")
