"""GPUNodes on a real API server: the definition is taken, the node part writes its own one, nobody else can, and it
goes with its node. What it says when figures change, and when the driver says nothing: test_vitals.py."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpushare.core.admission import guard
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError
from tests.e2e.harness import gpunodes, shipped, users
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.e2e.test_node_guard import ELSEWHERE, as_node_part, denied
from tests.e2e.test_node_guard import in_force as node_guard_in_force
from tests.node import world as node_world
from tests.support import wait
from tests.support.api_client import Api
from tests.support.manifests import NODE
from tests.support.nvml import build, state
from tests.support.objects import Object

OWN, OTHER, TENANT = "guarded-a", "guarded-b", "tenant"
PATH = "/apis/gpushare.io/v1alpha1/gpunodes"
FILES = [shipped.DEPLOY / name for name in ("node-ds.yaml", "node-guard.yaml", "guard.yaml", "view-rbac.yaml")]
COLUMNS = ["NAME", "GPUS", "MODEL", "GRANTED", "USED", "UTIL", "TEMP", "POWER", "HEALTH", "SAMPLED", "AGE"]
PATIENCE = 30.0
NOT_ITS_OWN = "a GPUNode belongs to its own node, and goes with it"
MIB = 1 << 20


@pytest.fixture
async def uids(cluster: Cluster, api: Api) -> AsyncIterator[dict[str, str]]:
    """Of two nodes, in a cluster with GPUNodes and all that guards them."""
    async with gpunodes.installed(cluster):
        for file in FILES:
            await cluster.kubectl("apply", "-f", file)
        nodes = [await api.create("/api/v1/nodes", node_world.node(name)) for name in (OWN, OTHER)]
        try:
            yield {node["metadata"]["name"]: node["metadata"]["uid"] for node in nodes}
        finally:
            for name in (OWN, OTHER):
                await api.call("DELETE", f"/api/v1/nodes/{name}")
            for file in FILES:
                await cluster.kubectl("delete", "-f", file)


@contextlib.asynccontextmanager
async def node_part(cluster: Cluster, uids: dict[str, str]) -> AsyncIterator[client.Api]:
    """The rights of the node part on OWN; everything that guards is in force."""
    bound = {"kind": "Node", "apiVersion": "v1", "name": OWN, "uid": uids[OWN]}
    async with as_node_part(cluster, bound) as api:
        await node_guard_in_force(api)
        yield api


async def shown(cluster: Cluster, name: str = OWN) -> Object | None:
    """None: there is none."""
    found = (await cluster.get(PATH))["items"]
    return next((one for one in found if one["metadata"]["name"] == name), None)


async def until(what: str, cluster: Cluster, path: str, wanted: object) -> Object:
    """Until a field of the status has this value."""
    found: Object = {}

    async def said() -> bool:
        nonlocal found
        found = (await shown(cluster) or {}).get("status") or {}
        value: object = found
        for step in path.split("."):
            if isinstance(value, list):
                value = value[int(step)] if len(value) > int(step) else None
            else:
                value = value.get(step) if isinstance(value, dict) else None
        return value == wanted

    await wait.eventually_asked(said, what, PATIENCE)
    return found


async def test_the_node_part_keeps_its_gpunode_and_it_goes_with_its_node(
    cluster: Cluster, uids: dict[str, str], figures: Figures
) -> None:
    async with program(cluster, uids) as gpus:
        gpus.show(*cards(used=4096 * MIB, util="37 20", temp=61, power=52_000))
        status = await until("the figures are there", cluster, "gpus.1.usedMiB", 4096)
        assert [status["gpus"][0][key] for key in ("utilization", "temperature", "powerWatts")] == [37, 61, 52]
        assert {one["type"]: one["status"] for one in status["conditions"]}["Sampled"] == "True"
        head, row = (await cluster.kubectl("get", "gn")).splitlines()
        assert head.split() == COLUMNS
        assert "Tesla T4" in row
        assert "8 GiB (25%)" in row
        figures.say("kubectl get gn", f"\n{head}\n{row}")

        await cluster.call("DELETE", f"{PATH}/{OWN}")
        gpus.show(*cards(util="10 0"))
        await until("it is made again", cluster, "gpus.0.utilization", 10)
        kept = await shown(cluster)
        assert kept is not None
        assert [one["uid"] for one in kept["metadata"]["ownerReferences"]] == [uids[OWN]]

        await cluster.call("DELETE", f"/api/v1/nodes/{OWN}")

        async def gone() -> bool:
            return await shown(cluster) is None

        await wait.eventually_asked(gone, "the garbage collector has deleted it", PATIENCE)
        gpus.show(*cards(util="99 0"))
        await asyncio.sleep(2.5)  # more than two samples: it must not come back
        assert await gone()


@contextlib.asynccontextmanager
async def program(cluster: Cluster, uids: dict[str, str]) -> AsyncIterator[state.Mock]:
    """`gpushare node` as a process, with the token of its pod and the stand-in for NVIDIA's library."""
    async with node_part(cluster, uids):
        folder = cluster.work / "mock"
        await asyncio.to_thread(build.build, folder)
        gpus = state.Mock(folder / shipped.STATE)
        gpus.show(*cards())
        environment = {"NODE_NAME": OWN, "LD_LIBRARY_PATH": str(folder), state.VARIABLE: str(gpus.path)}
        process = cluster.processes.start(
            "gpushare-node", Path(sys.executable).parent / "gpushare", "node", "--memory-unit=MiB", "--pin=direct",
            "--kubeconfig", cluster.work / f"{NODE}.kubeconfig", "--sample-seconds=1",
            environment={**os.environ, **environment},
        )  # fmt: skip
        try:
            yield gpus
            process.check()
        finally:
            await cluster.processes.end(process)


def cards(**changes: int | str | None) -> list[str]:
    return [state.card(number, 16276, *state.figures(**changes)) for number in range(2)]


async def test_a_tenant_with_all_rights_and_the_node_part_of_another_node_are_refused(
    world: World, cluster: Cluster, uids: dict[str, str]
) -> None:
    everything = "gpunodes.gpushare.io,gpunodes.gpushare.io/status"
    await cluster.kubectl("create", "clusterrole", TENANT, "--verb=*", f"--resource={everything}")
    await cluster.kubectl("create", "clusterrolebinding", TENANT, f"--clusterrole={TENANT}", f"--user={TENANT}")
    try:
        async with node_part(cluster, uids) as node, users.acting_as(world, TENANT) as tenant:
            foreign = {"apiVersion": "v1", "kind": "Node", "name": OTHER, "uid": uids[OTHER]}
            await denied(NOT_ITS_OWN, node.send(requests.create(resources.GPU_NODES, "", gpu_node(OWN, foreign))))
            owner = {"apiVersion": "v1", "kind": "Node", "name": OWN, "uid": uids[OWN]}
            await node.send(requests.create(resources.GPU_NODES, "", gpu_node(OWN, owner)))
            for key, value in (("ownerReferences", foreign), ("finalizers", "gpushare.io/stay")):
                await denied(
                    NOT_ITS_OWN, node.send(requests.patch(resources.GPU_NODES, "", OWN, {"metadata": {key: [value]}}))
                )
            await replace(node, {"driver": "true"})
            await denied(ELSEWHERE + OTHER, node.send(requests.create(resources.GPU_NODES, "", gpu_node(OTHER))))
            await check_forging(tenant)
            text = {"gpus": [{"uuid": "a", "usedMiB": "much"}]}
            with pytest.raises(ApiError, match="must be of type integer") as wrong:
                await replace(node, text)
            assert wrong.value.status == 422
            await elsewhere(cluster, uids)
    finally:
        await cluster.kubectl("delete", "clusterrolebinding,clusterrole", TENANT)


async def replace(part: client.Api, status: Object) -> None:
    """As a node part writes the status of the GPUNode of OWN."""
    shown = await part.fetch(requests.read(resources.GPU_NODES, "", OWN), dict)
    await part.send(requests.replace_status(resources.GPU_NODES, "", OWN, {**shown, "status": status}))


async def check_forging(person: Api) -> None:
    """There is a GPUNode of OWN. This person has all rights, and is not gpushare."""
    before = (await person.get(f"{PATH}/{OWN}")).body["status"]
    made = await person.call("POST", PATH, gpu_node(OTHER))
    forged = await person.patch(f"{PATH}/{OWN}/status", {"status": {"driver": "forged"}})
    for attempt in (made, forged):
        assert (attempt.code, attempt.message.endswith(guard.GPU_NODE)) == (403, True), attempt.body
    around = await person.patch(f"{PATH}/{OWN}", {"status": {"driver": "forged"}})
    assert around.code == 200, "this cannot change the status, and nothing else says anything"
    assert (await person.get(f"{PATH}/{OWN}")).body["status"] == before


async def elsewhere(cluster: Cluster, uids: dict[str, str]) -> None:
    """The node part of the other node."""
    bound = {"kind": "Node", "apiVersion": "v1", "name": OTHER, "uid": uids[OTHER]}
    async with as_node_part(cluster, bound) as other:
        says, label = ELSEWHERE.replace(OWN, OTHER) + OWN, {"metadata": {"labels": {"a": "b"}}}
        await denied(says, replace(other, {"driver": "forged"}))
        await denied(says, other.send(requests.patch(resources.GPU_NODES, "", OWN, label)))


def gpu_node(name: str, *owners: Object) -> Object:
    metadata = {"name": name, "ownerReferences": list(owners)}
    return {"apiVersion": "gpushare.io/v1alpha1", "kind": "GPUNode", "metadata": metadata}
