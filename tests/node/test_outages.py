"""The API server away, at the start and later, and whatever else can go wrong with it: in the end all is true."""

import asyncio
import itertools
import os
import random

import pytest

from gpushare.core.facts import names
from gpushare.core.facts.model import NodeFacts
from gpushare.devcluster.apiserver.server import ApiServer
from gpushare.devcluster.faults import plan
from gpushare.devcluster.faults.proxy import FaultProxy
from gpushare.gpu.device import Xid
from gpushare.gpu.simulated import Simulated, device
from gpushare.node import watches
from gpushare.obs.errors import UserError
from tests.node import world
from tests.node.world import bound, capacity, refusal, running, said
from tests.support import embedded_objects, extender_process, scripted_api
from tests.support.wait import PATIENCE, eventually, until

FULL = ("27454", "2")
SEED = int(os.environ.get("GPUSHARE_CHAOS_SEED", "20261116"))
STEPS, FAULTS_AT_LEAST = 60, 20
FAULTS = plan.Plan(
    rates={
        plan.LATENCY: 0.1, plan.CONFLICT: 0.05, plan.TOO_MANY: 0.02, plan.SERVER_ERROR: 0.1,
        plan.UNAVAILABLE: 0.1, plan.LOST_REPLY: 0.1, plan.LATE_WRITE: 0.1,
        plan.WATCH_CUT: 0.4, plan.WATCH_SILENT: 0.2, plan.WATCH_REPEAT: 0.1, plan.WATCH_LATE: 0.1,
    },
    latency=(0.0, 0.02),
    late_write=(0.01, 0.05),
    watch_events=(2, 20),
    watch_seconds=(0.05, 0.5),
)  # fmt: skip


async def test_an_api_server_that_is_not_there_yet_is_waited_for(server: ApiServer, gpus: Simulated) -> None:
    port = extender_process.free_port()
    async with running(f"http://127.0.0.1:{port}", gpus) as node:
        await eventually(lambda: "connect" in node.not_ready())  # longer than START_SECONDS here, and it still waits
        await eventually(lambda: node.watches.reflectors["node"].disconnected_for() > 2 * 0.5)
        async with FaultProxy(server.url, port=port):
            await until(server, lambda: capacity(server) == FULL)


async def test_what_happens_while_it_is_away_is_made_up_for(server: ApiServer, gpus: Simulated) -> None:
    port = extender_process.free_port()
    async with running(f"http://127.0.0.1:{port}", gpus) as node:
        async with FaultProxy(server.url, port=port):
            await until(server, lambda: capacity(server) == FULL)
        await eventually(lambda: node.watches.reflectors["node"].disconnected_for() > 0)
        gpus.lose("GPU-0")
        world.patch(server, {"status": {"capacity": {names.GPU_MEM: "0"}}}, "status")
        await eventually(lambda: node.gpus.unhealthy)
        assert capacity(server) == ("0", "2")
        async with FaultProxy(server.url, port=port):
            await until(server, lambda: capacity(server) == ("11178", "1"))
            await eventually(lambda: node.not_ready() == "")


async def test_after_etcd_was_put_back_the_node_says_what_it_must_again(server: ApiServer, gpus: Simulated) -> None:
    """The older copy knows neither its GPUs nor its pods, and its revisions are lower."""
    port = extender_process.free_port()
    async with running(f"http://127.0.0.1:{port}", gpus) as node:
        async with FaultProxy(server.url, port=port):
            await until(server, lambda: capacity(server) == FULL)
            bound(server, "later", 1000, on="GPU-0")
            await eventually(lambda: node.pods.pods)
        async with ApiServer(bookmark_seconds=0.05, nodes_copy_capacity=True) as older:
            embedded_objects.create(older, world.node())
            async with FaultProxy(older.url, port=port):
                await until(older, lambda: capacity(older) == FULL)
                await eventually(lambda: not node.pods.pods)


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (401, "Unauthorized")])
async def test_an_api_server_that_does_not_let_us_in_ends_it(
    quick: None, gpus: Simulated, code: int, reason: str
) -> None:
    async with scripted_api.serve() as refusing:
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            refusing.on(f"GET {path}", scripted_api.refuse(code, reason))
        error = await refusal(refusing.url, gpus)
        assert isinstance(error, UserError)
        assert str(code) in error.why


async def test_a_busy_api_server_is_waited_for(quick: None, gpus: Simulated) -> None:
    async with scripted_api.serve() as busy:
        for path in ("/api/v1/nodes", "/api/v1/pods"):
            busy.on(f"GET {path}", scripted_api.refuse(503, "ServiceUnavailable"))
        async with running(busy.url, gpus) as node:
            await eventually(lambda: node.watches.reflectors["node"].disconnected_for() > 2 * 0.5)
            assert "503" in node.not_ready()


async def test_whatever_goes_wrong_the_node_is_true_in_the_end(
    server: ApiServer, gpus: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs come, go and become unhealthy, pods come and end, others wipe what was written, and no request is sure."""
    dice = random.Random(SEED)
    monkeypatch.setattr(watches, "SILENCE", 0.5)
    monkeypatch.setattr(watches, "PATIENCE", 0.5)
    async with FaultProxy(server.url, FAULTS, seed=SEED) as proxy, running(proxy.url, gpus, timeout=1.0) as node:
        await until(server, lambda: capacity(server) == FULL)
        facts = world.published(server)
        steps = itertools.count()
        async with asyncio.timeout(PATIENCE):
            while next(steps) < STEPS or sum(proxy.counts[fault] for fault in plan.KINDS) < FAULTS_AT_LEAST:
                _something_happens(dice, server, gpus, facts)
                await asyncio.sleep(dice.uniform(0.0, 0.05))
        proxy.plan = plan.Plan()
        await proxy.settle()
        gpus.put(device(1, "GPU-1", 11178))
        for uuid in [d.uuid for d in await gpus.devices() if d.uuid not in ("GPU-0", "GPU-1")]:
            gpus.lose(uuid)
        for name in [pod["metadata"]["name"] for pod in _pods(server)]:
            embedded_objects.delete(server, name)
        bound(server, "last", 1000, on="GPU-0", facts=facts)
        await until(server, lambda: capacity(server) == FULL and set(_healthy(server)) >= {"GPU-0", "GPU-1"})
        await eventually(lambda: node.not_ready() == "")


def _something_happens(dice: random.Random, server: ApiServer, gpus: Simulated, facts: NodeFacts) -> None:
    match dice.randrange(6):
        case 0:
            bound(server, f"p{dice.random()}", dice.choice((500, 1000)), on="GPU-0", facts=facts)
        case 1:
            for pod in _pods(server)[:2]:
                embedded_objects.delete(server, pod["metadata"]["name"])
        case 2:
            gpus.report(Xid(dice.choice(("GPU-0", "GPU-1", None)), dice.choice((31, 48, 79))))
        case 3:
            gpus.put(device(2, "GPU-2", 8000))
        case 4:
            world.patch(server, {"status": {"capacity": {names.GPU_MEM: dice.choice((None, "0", "7"))}}}, "status")
        case 5:
            world.patch(server, {"metadata": {"annotations": {names.NODE_GPUS: dice.choice((None, "{}"))}}})


def _pods(server: ApiServer) -> list[world.Object]:
    return [entry.obj() for entry in server.store.snapshot("pods").entries]


def _healthy(server: ApiServer) -> list[str]:
    found = said(server)
    return [gpu["uuid"] for gpu in found["gpus"] if gpu["ok"]] if found else []
