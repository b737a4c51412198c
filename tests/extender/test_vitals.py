"""What GPUs do, in the extender: shown where it is known and fresh, and never in the way of anything."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import vitals as facts
from gpushare.core.ledger.ledger import Ledger
from gpushare.extender import app
from gpushare.extender.vitals import GpuNode, Vitals
from gpushare.kube import client, resources
from tests.support import builders, wait
from tests.support import scripted_api as scripted
from tests.support.embedded_objects import node
from tests.support.scripted_api import Server, event, page, refuse, watch

NOW = 1794745805.0  # 2026-11-15T12:30:05Z
FRESH, OLD = "2026-11-15T12:30:00Z", "2026-11-15T12:20:00Z"
PATH = resources.GPU_NODES.collection()
LIST, WATCH = f"GET {PATH}", f"WATCH {PATH}"


def gpunode(name: str = "a", sampled: Any = FRESH, version: str = "3", **gpu: Any) -> dict[str, Any]:
    gpus = [{"index": 0, "uuid": f"GPU-{name}-0", "usedMiB": 70, **gpu}]
    return {
        "metadata": {"name": name, "resourceVersion": version, "uid": f"uid-{name}"},
        "status": {"sampledAt": sampled, "gpus": gpus},
    }


def decoded(item: dict[str, Any]) -> GpuNode:
    return msgspec.json.decode(json.dumps(item), type=GpuNode)


@pytest.fixture
def kept() -> Vitals:
    return Vitals(Ledger(), now=lambda: NOW, clock=lambda: 100.0)


def used(kept: Vitals, name: str = "a") -> int | None:
    status = kept.fresh(name)
    return (status.gpus or ())[0].used_mib if status is not None else None


def test_the_last_status_of_a_node_counts(kept: Vitals) -> None:
    kept.upsert(decoded(gpunode()))
    kept.upsert(decoded(gpunode(usedMiB=80)))
    assert used(kept) == 80
    assert kept.fresh("b") is None


def test_figures_that_are_too_old_are_unknown(kept: Vitals) -> None:
    kept.upsert(decoded(gpunode(sampled=OLD)))
    assert kept.fresh("a") is None


@pytest.mark.parametrize("nothing", ["", "yesterday", "12:30"])
def test_figures_without_a_time_are_unknown(kept: Vitals, nothing: str) -> None:
    kept.upsert(decoded(gpunode(sampled=nothing)))
    assert kept.fresh("a") is None


def test_a_status_that_is_not_as_it_should_be_is_unknown(kept: Vitals) -> None:
    kept.upsert(decoded(gpunode()))
    kept.upsert(decoded(gpunode(usedMiB="much")))
    assert kept.fresh("a") is None
    kept.upsert(decoded({"metadata": {"name": "a"}, "status": ["nothing"]}))
    kept.upsert(decoded({"metadata": {"name": "a"}}))
    assert kept.fresh("a") is None


def test_pods_that_are_older_than_the_machine_were_there_when_a_sample_was_taken() -> None:
    """The clock of the ledger begins with the machine. What it does not know the age of is not new."""
    ledger = Ledger()
    ledger.set_node(builders.facts(8000, name="a"))
    ledger.observe(builders.bound(builders.pod(1000), builders.facts(8000, name="a"), ((0,),)), 1.0)
    kept = Vitals(ledger, now=lambda: NOW, clock=lambda: 2.0)  # seconds after the start; the sample is 5 s old
    kept.upsert(decoded(gpunode(usedMiB=900)))
    state = ledger.node("a")
    assert state is not None
    assert [load.used for load in state.loads()] == [900]


@pytest.mark.parametrize("figure", [-1, -(2**63), 2**63 - 1, 10**30, pytest.param(10**400, id="huge"), 1.5])
@pytest.mark.parametrize("of", ["usedMiB", "utilization", "powerWatts", "powerLimitWatts", "temperature"])
def test_figures_that_no_gpu_has_are_unknown(of: str, figure: float) -> None:
    """Points made of them would outdo all other nodes, or could not be worked out."""
    ledger = Ledger()
    ledger.set_node(builders.facts(8000, name="a"))
    kept = Vitals(ledger, now=lambda: NOW, clock=lambda: 100.0)
    wrong: dict[str, Any] = {of: figure}
    kept.upsert(decoded(gpunode()))
    kept.upsert(decoded(gpunode(**wrong)))
    state = ledger.node("a")
    assert state is not None
    assert (kept.fresh("a"), state.measured) == (None, None)


def test_the_containers_are_not_kept(kept: Vitals) -> None:
    kept.upsert(decoded(gpunode(containers=[{"pod": "p"}])))
    status = kept.fresh("a")
    assert status is not None
    assert [type(gpu) for gpu in status.gpus or ()] == [facts.GpuVitals]


def test_what_is_gone_is_forgotten(kept: Vitals) -> None:
    for name in ("a", "b", "c"):
        kept.upsert(decoded(gpunode(name)))
    kept.remove(decoded(gpunode("a")))
    kept.relisted({"c"})
    assert [used(kept, name) for name in ("a", "b", "c")] == [None, None, 70]


@asynccontextmanager
async def extender(gpunodes: Any, *watches: Any) -> AsyncIterator[tuple[Server, Any]]:
    """An extender whose API server has one node, and answers about GPUNodes as the test says."""
    async with scripted.serve() as server, client.connect(server.access()) as api:
        made = node("a", 8000)
        made["metadata"] |= {"resourceVersion": "1", "uid": "node-a"}
        lists = {"/api/v1/nodes": [made], "/api/v1/pods": [], "/api/v1/namespaces/kube-system/configmaps": []}
        for path, items in lists.items():
            server.on(f"GET {path}", page(items, "5"))
            server.on(f"WATCH {path}", watch(then="hang"))
        server.on(LIST, *(gpunodes if isinstance(gpunodes, list) else [gpunodes]))
        server.on(WATCH, *(watches or [watch(then="hang")]))
        made_extender = app.Extender(app.Config("127.0.0.1", [0], "binpack", None, None), api)
        made_extender.vitals._now = lambda: NOW
        tasks = made_extender.start()
        try:
            await wait.eventually(lambda: not made_extender.not_ready(), "the first sync")
            yield server, made_extender
            assert not any(task.done() for task in tasks)
            assert made_extender.not_ready() == ""
            assert made_extender.is_connected()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def device(made: Any) -> dict[str, Any]:
    status, body = made.verbs.inspect("a")
    assert status == 200
    found: dict[str, Any] = json.loads(body)["nodes"][0]["devs"][0]
    return found


async def test_inspect_shows_what_the_gpus_do_and_what_changes() -> None:
    changed = watch(event("MODIFIED", gpunode(version="9", usedMiB=80, utilization=4)), then="hang")
    async with extender(page([gpunode()], "5"), changed) as (_, made):
        await wait.eventually(lambda: device(made).get("usedMiB") == 80, "the change")
        assert device(made) == {
            "id": 0, "totalGPU": 8000, "usedGPU": 0, "healthy": True, "pods": [],
            "usedMiB": 80, "utilization": 4, "sampledAt": FRESH,
        }  # fmt: skip


@pytest.mark.parametrize("answer", [refuse(404, "NotFound"), refuse(403, "Forbidden"), refuse(503), scripted.hang])
async def test_without_gpunodes_everything_else_is_as_ever(answer: Any) -> None:
    async with extender(answer) as (server, made):
        await wait.eventually(lambda: server.count(LIST), "the question")
        assert device(made) == {"id": 0, "totalGPU": 8000, "usedGPU": 0, "healthy": True, "pods": []}
        assert "gpunodes" not in made.watches  # its age is nobody's alarm


async def test_a_malformed_gpunode_does_not_hide_the_others() -> None:
    listed = page([gpunode("b", usedMiB={}), gpunode("a")], "5")
    async with extender(listed) as (_, made):
        await wait.eventually(lambda: device(made).get("usedMiB") == 70, "the other one")


async def test_they_are_asked_for_after_what_decisions_need() -> None:
    async with extender(page([], "5")) as (server, _):
        await wait.eventually(lambda: server.count(WATCH), "the watch")
        paths = [asked.path for asked in server.asked]
        assert paths.index(PATH) > max(paths.index(path) for path in ("/api/v1/nodes", "/api/v1/pods"))
