"""A request is data: what is sent for any kind of object, and what comes back."""

import pytest

from gpushare.core.facts import objects
from gpushare.kube import models, requests, resources
from gpushare.kube.errors import ApiError
from gpushare.kube.requests import Request
from gpushare.kube.resources import Resource
from tests.support.scripted_api import answer, event, page, pod, refuse, serve_api, watch

LEASES = Resource("coordination.k8s.io", "v1", "leases")
CLASSES = Resource("example.com", "v1alpha1", "gpuclasses", namespaced=False)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ml/leases/lead"
CLASS = "/apis/example.com/v1alpha1/gpuclasses/fast"


class Item(objects.Struct):
    metadata: objects.Metadata


@pytest.mark.parametrize(
    ("request_", "method", "path", "content_type"),
    [
        (requests.read(LEASES, "ml", "lead"), "GET", LEASE, "application/json"),
        (requests.read(CLASSES, "", "fast"), "GET", CLASS, "application/json"),
        (requests.create(LEASES, "ml", {}), "POST", LEASE.removesuffix("/lead"), "application/json"),
        (requests.create(CLASSES, "", {}), "POST", CLASS.removesuffix("/fast"), "application/json"),
        (requests.apply(CLASSES, "", "fast", {}, manager="me"), "PATCH", CLASS, "application/apply-patch+yaml"),
        (requests.patch(LEASES, "ml", "lead", {}), "PATCH", LEASE, "application/merge-patch+json"),
        (
            requests.patch(LEASES, "ml", "lead", {}, content_type=requests.STRATEGIC),
            "PATCH",
            LEASE,
            "application/strategic-merge-patch+json",
        ),
        (
            requests.patch_status(CLASSES, "", "fast", {}),
            "PATCH",
            CLASS + "/status",
            "application/merge-patch+json",
        ),
        (requests.delete(LEASES, "ml", "lead"), "DELETE", LEASE, "application/json"),
    ],
)
def test_a_kind_needs_no_more_than_its_names(request_: Request, method: str, path: str, content_type: str) -> None:
    assert (request_.method, request_.path, request_.content_type) == (method, path, content_type)


async def test_an_apply_names_its_manager_and_takes_fields_over_only_if_told_to() -> None:
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lead"}}
    async with serve_api() as (server, api):
        server.on(f"PATCH {LEASE}", refuse(409, "Conflict", "conflict with kubectl"), answer(pod("lead", 7)))
        with pytest.raises(ApiError) as caught:
            await api.send(requests.apply(LEASES, "ml", "lead", body, manager="operator"))
        assert (caught.value.status, caught.value.message) == (409, "conflict with kubectl")
        applied = await api.fetch(
            requests.apply(LEASES, "ml", "lead", body, manager="operator", force=True), models.Versioned
        )
        assert applied.metadata.resource_version == "7"
        assert [asked.query for asked in server.asked] == [
            {"fieldManager": "operator"},
            {"fieldManager": "operator", "force": "true"},
        ]
        assert {asked.headers["Content-Type"] for asked in server.asked} == {"application/apply-patch+yaml"}
        assert server.asked[0].body == body


async def test_a_status_is_patched_alone_and_only_of_the_object_that_is_meant() -> None:
    async with serve_api() as (server, api):
        server.on(f"PATCH {CLASS}/status", answer({}))
        await api.send(requests.patch_status(CLASSES, "", "fast", {"phase": "Ready"}))
        await api.send(requests.patch_status(CLASSES, "", "fast", {"phase": "Ready"}, uid="u"))
        assert [asked.body for asked in server.asked] == [
            {"status": {"phase": "Ready"}},
            {"metadata": {"uid": "u"}, "status": {"phase": "Ready"}},
        ]


async def test_a_deletion_may_be_of_one_uid_only() -> None:
    async with serve_api() as (server, api):
        server.on(f"DELETE {LEASE}", answer({}), refuse(409, "Conflict"))
        await api.send(requests.delete(LEASES, "ml", "lead"))
        with pytest.raises(ApiError):
            await api.send(requests.delete(LEASES, "ml", "lead", uid="u"))
        assert [asked.body for asked in server.asked] == [None, {"preconditions": {"uid": "u"}}]


async def test_any_kind_is_listed_and_watched() -> None:
    path = CLASS.removesuffix("/fast")
    async with serve_api() as (server, api):
        server.on(f"GET {path}", page([pod("fast", 3)], "5"))
        server.on(f"WATCH {path}", watch(event("DELETED", pod("fast", 6))))
        listed = [item async for items, _ in api.list_pages(CLASSES, Item) for item in items]
        async with api.watch(CLASSES, Item, "5") as events:
            seen = [(one.type, one.object.metadata.name if one.object else "") async for one in events]
        assert [item.metadata.name for item in listed] == ["fast"]
        assert seen == [("DELETED", "fast")]


async def test_what_is_not_there_is_none() -> None:
    async with serve_api() as (server, api):
        server.on(f"GET {LEASE}", refuse(404, "NotFound"), refuse(500, "InternalError"))
        assert await api.find(requests.read(LEASES, "ml", "lead"), models.Versioned) is None
        with pytest.raises(ApiError):
            await api.find(requests.read(LEASES, "ml", "lead"), models.Versioned)


def test_a_collection_is_of_one_namespace_or_of_all() -> None:
    assert resources.PODS.collection() == "/api/v1/pods"
    assert resources.PODS.collection("ml/..") == "/api/v1/namespaces/ml%2F../pods"
    assert LEASES.collection("ml") == LEASE.removesuffix("/lead")


@pytest.mark.parametrize("namespace", ["", ".", ".."])
def test_an_object_of_a_namespaced_kind_is_created_in_a_namespace(namespace: str) -> None:
    with pytest.raises(ApiError, match="not a name"):
        requests.create(LEASES, namespace, {})
