"""Our client on a real API server: objects of any kind are applied, patched, listed, watched and deleted as data."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpushare.core.facts import objects
from gpushare.kube import client, requests, resources
from gpushare.kube.auth import login
from gpushare.kube.errors import ApiError
from gpushare.kube.resources import Resource
from tests.e2e.harness.cluster import ADMIN, Cluster
from tests.support import api_client

PATIENCE = 20.0  # seconds
GROUP = "client.example.com"
LEASES = Resource("coordination.k8s.io", "v1", "leases")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
SAMPLES = Resource(GROUP, "v1", "samples")
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
ANY_FIELDS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"samples.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "samples", "singular": "sample", "kind": "Sample"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": ANY_FIELDS, "status": ANY_FIELDS}}
                },
            }
        ],
    },
}
CONTAINER = {"name": "main", "image": "none"}
BODIES: dict[Resource, dict[str, Any]] = {
    resources.CONFIG_MAPS: {"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"}},
    LEASES: {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "me"}},
    DEPLOYMENTS: {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "it"}},
            "template": {"metadata": {"labels": {"app": "it"}}, "spec": {"containers": [CONTAINER]}},
        },
    },
    SAMPLES: {"apiVersion": f"{GROUP}/v1", "kind": "Sample", "spec": {"size": 1}},
}
KINDS = pytest.mark.parametrize("resource", BODIES, ids=lambda resource: resource.plural)


class Item(objects.Struct):
    """An object of any kind, as far as these tests read it."""

    metadata: objects.Metadata = msgspec.field(default_factory=objects.Metadata)
    status: dict[str, Any] | None = None

    @property
    def value(self) -> str | None:
        return (self.metadata.annotations or {}).get("value")


@contextlib.asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[client.Api]:
    config = cluster.kubeconfig(ADMIN, cluster.tokens[ADMIN])
    async with client.connect(login.load(str(config), None, os.environ, Path.home())) as connection:
        yield connection


@pytest.fixture
async def ours(cluster: Cluster) -> AsyncIterator[client.Api]:
    async with connected(cluster) as connection:
        yield connection


@pytest.fixture(scope="module", autouse=True)
def defined(cluster: Cluster) -> Iterator[None]:
    """The custom resource."""
    asyncio.run(define(cluster))
    yield
    asyncio.run(forget(cluster))


async def define(cluster: Cluster) -> None:
    """Until it is served."""
    async with connected(cluster) as ours, asyncio.timeout(PATIENCE):
        await ours.send(requests.create(DEFINITIONS, "", DEFINITION))
        while True:
            with contextlib.suppress(ApiError):
                await ours.revision(SAMPLES)
                return
            await asyncio.sleep(0.1)


async def forget(cluster: Cluster) -> None:
    async with connected(cluster) as ours:
        await ours.send(requests.delete(DEFINITIONS, "", f"samples.{GROUP}"))


def body(resource: Resource, namespace: str, value: str) -> Mapping[str, Any]:
    meta = {"name": "it", "namespace": namespace, "annotations": {"value": value}}
    return {**BODIES[resource], "metadata": meta}


async def applied(
    ours: client.Api, resource: Resource, namespace: str, value: str, manager: str, *, force: bool = False
) -> Item:
    content = body(resource, namespace, value)
    return await ours.fetch(requests.apply(resource, namespace, "it", content, manager=manager, force=force), Item)


async def status_of(ours: client.Api, request: requests.Request) -> int:
    """With which the API server refuses."""
    with pytest.raises(ApiError) as caught:
        await ours.send(request)
    return caught.value.status


@KINDS
async def test_what_another_manager_owns_is_taken_over_only_by_force(
    ours: client.Api, api: api_client.Api, resource: Resource
) -> None:
    space = api.namespace
    first = await applied(ours, resource, space, "one", "first")
    assert first.value == "one"
    again = await applied(ours, resource, space, "one", "first")
    assert again.metadata.uid == first.metadata.uid
    with pytest.raises(ApiError) as caught:
        await applied(ours, resource, space, "two", "second")
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    assert '"first"' in caught.value.message
    forced = await applied(ours, resource, space, "two", "second", force=True)
    assert (forced.value, forced.metadata.uid) == ("two", first.metadata.uid)


@KINDS
async def test_a_change_and_a_deletion_are_seen_by_a_watch_from_the_list(
    ours: client.Api, api: api_client.Api, resource: Resource
) -> None:
    space = api.namespace
    made = await applied(ours, resource, space, "one", "first")
    listed: dict[str, str | None] = {}
    versions: set[str] = set()
    async for items, of_the_list in ours.list_pages(resource, Item, namespace=space):
        listed |= {item.metadata.name: item.value for item in items}
        versions.add(of_the_list)
    (version,) = versions
    assert listed["it"] == "one"
    seen: list[tuple[str, str | None]] = []
    async with asyncio.timeout(PATIENCE), ours.watch(resource, Item, version, namespace=space) as events:
        change = {"metadata": {"annotations": {"value": "two"}}}
        changed = await ours.fetch(requests.patch(resource, space, "it", change), Item)
        assert changed.value == "two"
        assert await status_of(ours, requests.delete(resource, space, "it", uid="another")) == 409
        await ours.send(requests.delete(resource, space, "it", uid=made.metadata.uid))
        async for event in events:
            if event.object is not None and event.object.metadata.name == "it":
                seen.append((event.type, event.object.value))
                if event.type == "DELETED":
                    break
    # The controller of Deployments writes a status meanwhile.
    assert ("MODIFIED", "two") in seen
    assert seen[-1] == ("DELETED", "two")
    assert await ours.find(requests.read(resource, space, "it"), Item) is None


async def test_the_status_of_a_custom_resource_is_patched_alone(ours: client.Api, api: api_client.Api) -> None:
    space = api.namespace
    made = await ours.fetch(requests.create(SAMPLES, space, body(SAMPLES, space, "one")), Item)
    patch = requests.patch_status(SAMPLES, space, "it", {"phase": "Ready"}, uid=made.metadata.uid)
    ready = await ours.fetch(patch, Item)
    assert (ready.status, ready.value) == ({"phase": "Ready"}, "one")
    left = await ours.fetch(requests.patch(SAMPLES, space, "it", {"status": {"phase": "Lost"}}), Item)
    assert left.status == {"phase": "Ready"}, "a status is written by a patch of the status only"


async def test_a_uid_guards_the_status_of_kinds_that_kubernetes_brings_and_not_of_custom_resources(
    ours: client.Api, api: api_client.Api
) -> None:
    space = api.namespace
    await applied(ours, DEPLOYMENTS, space, "one", "first")
    late = requests.patch_status(DEPLOYMENTS, space, "it", {"observedGeneration": 1}, uid="another")
    assert await status_of(ours, late) in (409, 422)
    await ours.fetch(requests.create(SAMPLES, space, body(SAMPLES, space, "one")), Item)
    ignored = requests.patch_status(SAMPLES, space, "it", {"phase": "Lost"}, uid="another")
    assert (await ours.fetch(ignored, Item)).status == {"phase": "Lost"}


async def test_conditions_are_merged_by_their_type(ours: client.Api, api: api_client.Api) -> None:
    space = api.namespace
    await applied(ours, DEPLOYMENTS, space, "one", "first")
    types: set[str] = set()
    for type in ("Tried", "Told"):
        status = {"conditions": [{"type": type, "status": "True", "reason": "Test", "message": ""}]}
        request = requests.patch_status(DEPLOYMENTS, space, "it", status, content_type=requests.STRATEGIC)
        patched = await ours.fetch(request, Item)
        types = {condition["type"] for condition in (patched.status or {})["conditions"]}
    assert {"Tried", "Told"} <= types
