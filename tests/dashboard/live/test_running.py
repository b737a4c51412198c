"""Against an API server: what is there is read, what changes is followed, and what may be missing stops nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.dashboard.live.cluster import Live
from gpushare.kube import resources
from gpushare.view import usage
from tests.dashboard.live import world
from tests.support import objects
from tests.support.scripted_api import Server, event, page, refuse, serve_api, watch
from tests.support.tasks import beside
from tests.support.wait import eventually

NODES, PODS = resources.NODES.collection(), resources.PODS.collection()
MAPS, GPU_NODES = resources.CONFIG_MAPS.collection(names.UNHEALTHY_NAMESPACE), resources.GPU_NODES.collection()
MAP = {"metadata": {"name": "unhealthy-gpu-n", "resourceVersion": "2"}, "data": {"gpus": "1"}}
TOLD = {"metadata": {"name": "n", "resourceVersion": "2"}, "status": {"gpus": [{"index": 0, "usedMiB": 70}]}}
OPEN = watch(then="hang")


def node() -> dict[str, Any]:
    made = objects.node("n", {"gpus": [8000, 8000], "pin": "direct"})
    made["metadata"] |= {"name": "n", "uid": "node-n", "resourceVersion": "1"}
    return made


def pod(version: int = 3) -> dict[str, Any]:
    made = objects.pod({"name": "p", "containers": {"main": 500}, "direct": True, "node": "n"})
    made["metadata"] |= {"resourceVersion": str(version)}
    made["metadata"]["annotations"] |= {f"{names.VISIBLE_PREFIX}0": "GPU-n-0"}
    return made


@asynccontextmanager
async def following(**answers: Any) -> AsyncIterator[tuple[Live, Server]]:
    """A live cluster of one node. `answers`: to a list of GPUNodes and of ConfigMaps, and the watch of pods."""
    async with serve_api() as (server, api):
        server.on(f"GET {NODES}", page([node()], "5"))
        server.on(f"GET {PODS}", page([], "5"))
        server.on(f"GET {GPU_NODES}", answers.get("gpunodes", page([TOLD], "5")))
        server.on(f"GET {MAPS}", answers.get("maps", page([MAP], "5")))
        for path in (NODES, GPU_NODES, MAPS):
            server.on(f"WATCH {path}", OPEN)
        server.on(f"WATCH {PODS}", answers.get("pods", OPEN))
        live = Live(world.Clock())
        async with beside(live.run(api)):
            await eventually(lambda: live.ages().synced, "the first lists")
            yield live, server


async def test_everything_is_read_and_followed() -> None:
    shown = watch(event("ADDED", pod(7)), then="hang")
    async with following(pods=shown) as (live, _):
        await eventually(lambda: live.snapshot().pods and live.snapshot().doing and live.nodes.unhealthy())
        found = usage.nodes(live.snapshot())[0]
        assert [(gpu.used, gpu.healthy) for gpu in found.gpus] == [(500, True), (0, False)]
        assert live.take_touched() == {"n"}
        assert live.ages().failure == ""
        assert live.ages().watch < 15


@pytest.mark.parametrize("status", [403, 404])
async def test_a_cluster_without_gpunodes_and_a_user_without_rights_lack_nothing_else(status: int) -> None:
    no = refuse(status, "No", "no")
    async with following(gpunodes=no, maps=no) as (live, _):
        assert [gpu.healthy for gpu in usage.nodes(live.snapshot())[0].gpus] == [True, True]
        ages = live.ages()
        assert (ages.use, ages.failure) == (None, "")


async def test_an_api_server_that_refuses_is_named_in_one_sentence() -> None:
    async with serve_api() as (server, api):
        for path in (NODES, PODS, GPU_NODES, MAPS):
            server.on(f"GET {path}", refuse(403, "Forbidden", "pods is forbidden"))
        live = Live(world.Clock())
        async with beside(live.run(api)):
            said = await eventually(lambda: live.ages().failure if "forbidden" in live.ages().failure else None)
    assert "\n" not in said
    assert not live.ages().synced
