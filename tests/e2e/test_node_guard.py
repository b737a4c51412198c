"""deploy/node-guard.yaml on a real API server: the node part writes to its own node, and only what it has to."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.kube import client, pod_requests, requests
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError
from gpushare.kube.requests import Request
from gpushare.node.publishing import publisher
from tests.e2e.harness import shipped
from tests.e2e.harness.cluster import Cluster
from tests.node import world
from tests.support import api_client
from tests.support.manifests import NODE

PATIENCE = 20.0  # seconds
OWN, OTHER = "guarded-a", "guarded-b"
ELSEWHERE = "gpushare on guarded-a writes to its own node, and to the pods there; this is about "
MORE = "gpushare writes annotations, and nothing else of a node or pod"
LABEL = {"metadata": {"labels": {"x": "y"}}}
CORDON = {"spec": {"unschedulable": True}}
SHORT_LIFE = {"spec": {"activeDeadlineSeconds": 5}}


@pytest.fixture
async def uids(cluster: Cluster, api: api_client.Api) -> AsyncIterator[Mapping[str, str]]:
    """Of two nodes, of a pod on each, and of one on none."""
    files = [shipped.DEPLOY / name for name in ("node-ds.yaml", "node-guard.yaml")]
    for file in files:
        await cluster.kubectl("apply", "-f", file)
    made = {name: (await api.create("/api/v1/nodes", world.node(name)))["metadata"]["uid"] for name in (OWN, OTHER)}
    for name, node in (("at-home", OWN), ("abroad", OTHER), ("nowhere", None)):
        spec: dict[str, Any] = {"nodeName": node} if node else {"schedulerName": "nobody"}
        made[name] = (await api.create(api.pods, api_client.pod(name, **spec)))["metadata"]["uid"]
    try:
        yield made
    finally:
        for name in (OWN, OTHER):
            await api.call("DELETE", f"/api/v1/nodes/{name}")
        for file in files:
            await cluster.kubectl("delete", "-f", file)


@contextlib.asynccontextmanager
async def as_node_part(cluster: Cluster, bound: Mapping[str, str] | None) -> AsyncIterator[client.Api]:
    """With the token that its pod on a node would have, or with one that somebody made by hand."""
    path = f"/api/v1/namespaces/{shipped.NAMESPACE}/serviceaccounts/{NODE}/token"
    answer = await cluster.call("POST", path, {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}})
    config = cluster.kubeconfig(NODE, answer["status"]["token"])
    async with client.connect(login.load(str(config), None, os.environ, Path.home())) as api:
        yield api


async def test_the_node_part_writes_to_its_own_node_and_annotations_only(
    cluster: Cluster, api: api_client.Api, uids: Mapping[str, str]
) -> None:
    async def marked(node: client.Api, pod: str) -> None:
        await pod_requests.annotate(node, api.namespace, pod, uids[pod], {"x": "y"})

    bound = {"kind": "Node", "apiVersion": "v1", "name": OWN, "uid": uids[OWN]}
    async with as_node_part(cluster, bound) as node:
        await in_force(node)
        await denied(ELSEWHERE + OTHER, publisher.annotate(node, OTHER, {"x": "y"}))
        await denied(ELSEWHERE + OTHER, publisher.set_capacity(node, OTHER, {names.GPU_MEM: 5}))
        await denied(ELSEWHERE + OTHER, marked(node, "abroad"))
        await denied(ELSEWHERE + "a pod that is on no node", marked(node, "nowhere"))
        for path, change in (
            (f"/api/v1/nodes/{OWN}", CORDON),
            (f"{api.pods}/at-home", LABEL),
            (f"{api.pods}/at-home", SHORT_LIFE),
        ):
            await denied(MORE, node.send(Request("PATCH", path, None, change, requests.MERGE)))
        await publisher.annotate(node, OWN, {"x": "y"})
        await publisher.set_capacity(node, OWN, {names.GPU_MEM: 5})
        await marked(node, "at-home")
    async with as_node_part(cluster, None) as by_hand:
        await publisher.annotate(by_hand, OTHER, {"x": "y"})


async def in_force(node: client.Api) -> None:
    """The API server takes a policy, and minds it a moment later."""
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ApiError):
            while True:
                await publisher.annotate(node, OTHER, {"x": "y"})
                await asyncio.sleep(0.1)


async def denied(sentence: str, asked: Awaitable[object]) -> None:
    with pytest.raises(ApiError) as caught:
        await asked
    assert caught.value.status == 403
    assert caught.value.message.endswith(sentence)
