"""GPUNodes on a real API server: the definition is taken, the node part writes its own one, nobody else can, and it
goes with its node."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from gpushare.core.admission import guard
from gpushare.gpu.sample import Pass, Sample
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client, requests, resources
from gpushare.kube.errors import ApiError
from gpushare.node.app import Config, Node
from gpushare.node.observer import Config as Observing
from tests.e2e.harness import shipped, users
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.figures import Figures
from tests.e2e.harness.world import World
from tests.e2e.test_node_guard import ELSEWHERE, as_node_part, denied
from tests.e2e.test_node_guard import in_force as node_guard_in_force
from tests.node import world as node_world
from tests.support import wait
from tests.support.api_client import Api
from tests.support.objects import Object

OWN, OTHER, TENANT = "guarded-a", "guarded-b", "tenant"
PATH = "/apis/gpushare.io/v1alpha1/gpunodes"
CRD = shipped.DEPLOY / "crds"
FILES = [shipped.DEPLOY / name for name in ("node-ds.yaml", "node-guard.yaml", "guard.yaml", "view-rbac.yaml")]
COLUMNS = ["NAME", "GPUS", "MODEL", "GRANTED", "USED", "UTIL", "TEMP", "POWER", "HEALTH", "SAMPLED", "AGE"]
PATIENCE = 30.0
MIB = 1 << 20


class Busy(Simulated):
    """Its GPUs do what a test says."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(node_world.devices(*sizes))
        self.figures: Object = {"memory_used": 4096 * MIB, "gpu_util": 37, "temperature": 61, "power": 52_000,
                                "power_limit": 70_000}  # fmt: skip

    async def sample(self) -> Pass:
        return Pass("580.1", tuple([Sample(one.uuid, one.index, **self.figures) for one in await self.devices()]))


@pytest.fixture
async def uids(cluster: Cluster, api: Api) -> AsyncIterator[dict[str, str]]:
    """Of two nodes, in a cluster with GPUNodes and all that guards them."""
    await cluster.kubectl("apply", "-f", CRD)
    await cluster.kubectl("wait", "--for=condition=Established", "crd/gpunodes.gpushare.io", "--timeout=20s")
    for file in FILES:
        await cluster.kubectl("apply", "-f", file)
    nodes = [await api.create("/api/v1/nodes", node_world.node(name)) for name in (OWN, OTHER)]
    try:
        yield {node["metadata"]["name"]: node["metadata"]["uid"] for node in nodes}
    finally:
        for name in (OWN, OTHER):
            await api.call("DELETE", f"/api/v1/nodes/{name}")
        for file in [*FILES, CRD]:
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
    cluster: Cluster, api: Api, uids: dict[str, str], figures: Figures
) -> None:
    backend = Busy(16276, 16276)
    config = Config(OWN, "MiB", "direct", port=0, observing=Observing(sample_seconds=0.5))
    async with node_part(cluster, uids) as rights, node_world.at_work(Node(config, rights, backend)):
        status = await until("the figures are there", cluster, "gpus.1.usedMiB", 4096)
        assert [status["gpus"][0][key] for key in ("utilization", "temperature", "powerWatts")] == [37, 61, 52]
        assert {one["type"]: one["status"] for one in status["conditions"]} == {"Sampled": "True", "OverUse": "Unknown"}
        head, row = (await cluster.kubectl("get", "gn")).splitlines()
        assert head.split() == COLUMNS
        assert "simulated GPU" in row
        assert "8 GiB (25%)" in row
        figures.say("kubectl get gn", f"\n{head}\n{row}")
        backend.figures = {"gpu_util": 99, "temperature": 80}
        status = await until("what changed is written", cluster, "gpus.0.utilization", 99)
        assert "usedMiB" not in status["gpus"][0], "what is unknown now is not there any more"
        assert status["summary"]["used"] == "-"
        await cluster.call("DELETE", f"{PATH}/{OWN}")
        backend.figures = {"gpu_util": 10, "temperature": 40}
        await until("it is made again", cluster, "gpus.0.utilization", 10)
        kept = await shown(cluster)
        assert kept is not None
        assert [one["uid"] for one in kept["metadata"]["ownerReferences"]] == [uids[OWN]]
        await cluster.call("DELETE", f"/api/v1/nodes/{OWN}")

        async def gone() -> bool:
            return await shown(cluster) is None

        await wait.eventually_asked(gone, "the garbage collector has deleted it", PATIENCE)
        await asyncio.sleep(1.5)  # three samples: it must not come back
        assert await gone()


async def test_a_tenant_with_all_rights_and_the_node_part_of_another_node_are_refused(
    world: World, cluster: Cluster, uids: dict[str, str]
) -> None:
    everything = "gpunodes.gpushare.io,gpunodes.gpushare.io/status"
    await cluster.kubectl("create", "clusterrole", TENANT, "--verb=*", f"--resource={everything}")
    await cluster.kubectl("create", "clusterrolebinding", TENANT, f"--clusterrole={TENANT}", f"--user={TENANT}")
    try:
        async with node_part(cluster, uids) as node, users.acting_as(world, TENANT) as tenant:
            await node.send(requests.create(resources.GPU_NODES, "", gpu_node(OWN)))
            await node.send(requests.patch_status(resources.GPU_NODES, "", OWN, {"driver": "true"}))
            await denied(ELSEWHERE + OTHER, node.send(requests.create(resources.GPU_NODES, "", gpu_node(OTHER))))
            made = await tenant.call("POST", PATH, gpu_node(OTHER))
            forged = await tenant.patch(f"{PATH}/{OWN}/status", {"status": {"driver": "forged"}})
            for attempt in (made, forged):
                assert (attempt.code, attempt.message.endswith(guard.GPU_NODE)) == (403, True), attempt.body
            around = await tenant.patch(f"{PATH}/{OWN}", {"status": {"driver": "forged"}})
            assert around.code == 200, "only the status says anything, and this cannot change it"
            kept = await shown(cluster)
            assert kept is not None
            assert kept["status"] == {"driver": "true"}
            text = {"gpus": [{"uuid": "a", "usedMiB": "much"}]}
            with pytest.raises(ApiError, match="must be of type integer") as wrong:
                await node.send(requests.patch_status(resources.GPU_NODES, "", OWN, text))
            assert wrong.value.status == 422
            await elsewhere(cluster, uids)
    finally:
        await cluster.kubectl("delete", "clusterrolebinding,clusterrole", TENANT)


async def elsewhere(cluster: Cluster, uids: dict[str, str]) -> None:
    """The node part of the other node."""
    bound = {"kind": "Node", "apiVersion": "v1", "name": OTHER, "uid": uids[OTHER]}
    async with as_node_part(cluster, bound) as other:
        says, label = ELSEWHERE.replace(OWN, OTHER) + OWN, {"metadata": {"labels": {"a": "b"}}}
        await denied(says, other.send(requests.patch_status(resources.GPU_NODES, "", OWN, {"driver": "forged"})))
        await denied(says, other.send(requests.patch(resources.GPU_NODES, "", OWN, label)))


def gpu_node(name: str) -> Object:
    return {"apiVersion": "gpushare.io/v1alpha1", "kind": "GPUNode", "metadata": {"name": name}}
