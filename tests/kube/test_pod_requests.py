"""Reading, annotating, binding, evicting a pod: never another one of that name, and never a guess what came of it."""

from typing import Any

import pytest

from gpushare.kube import pod_requests
from gpushare.kube.errors import ApiError, Unreachable
from tests.support.scripted_api import answer, cut, hang, pod, refuse, serve_api

POD = "/api/v1/namespaces/ml/pods/train"
NEW, OLD = answer({"major": "1", "minor": "36"}), answer({"major": "1", "minor": "22+"})
CREATED = answer({"kind": "Status", "status": "Success"}, 201)


async def test_a_pod_that_is_not_there_is_none() -> None:
    async with serve_api() as (server, api_):
        server.on(f"GET {POD}", answer(pod("train", 5)), refuse(404, "NotFound"), refuse(500, "InternalError"))
        found = await pod_requests.read(api_, "ml", "train")
        assert found
        assert found.metadata.uid == "uid-train"
        assert await pod_requests.read(api_, "ml", "train") is None
        with pytest.raises(ApiError):
            await pod_requests.read(api_, "ml", "train")


async def test_a_bind_is_one_write_with_uid_and_annotations() -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", NEW)
        server.on(f"POST {POD}/binding", CREATED)
        await pod_requests.bind(api_, "ml", "train", "uid-1", "node-1", {"a": "b"})
        await pod_requests.bind(api_, "ml", "train", "uid-1", "node-1", {})
        assert [asked.method for asked in server.asked] == ["GET", "POST", "POST"]  # the version is asked once
        assert server.asked[1].headers["Content-Type"] == "application/json"
        assert server.asked[1].body == {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "train", "namespace": "ml", "uid": "uid-1", "annotations": {"a": "b"}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        }


async def test_a_pod_bound_already_is_a_conflict() -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", NEW)
        server.on(f"POST {POD}/binding", refuse(409, "Conflict", "already assigned"))
        with pytest.raises(ApiError) as caught:
            await pod_requests.bind(api_, "ml", "train", "uid-1", "node-1", {})
        assert (caught.value.status, caught.value.reason, caught.value.message) == (409, "Conflict", "already assigned")


async def test_before_1_23_the_uid_is_looked_at_before_the_bind() -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", OLD)
        server.on(f"GET {POD}", answer(pod("train", 5)), refuse(404, "NotFound"))
        server.on(f"POST {POD}/binding", CREATED)
        await pod_requests.bind(api_, "ml", "train", "uid-train", "node-1", {})
        assert server.count(f"POST {POD}/binding") == 1
        with pytest.raises(ApiError) as caught:
            await pod_requests.bind(api_, "ml", "train", "uid-train", "node-1", {})
        assert caught.value.status == 404
        server.on(f"GET {POD}", answer(pod("train", 5)))
        with pytest.raises(ApiError) as caught:
            await pod_requests.bind(api_, "ml", "train", "uid-of-its-namesake", "node-1", {})
        assert caught.value.status == 409
        assert server.count(f"POST {POD}/binding") == 1


async def test_a_bind_that_is_cut_off_may_have_been_carried_out() -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", NEW)
        server.on(f"POST {POD}/binding", cut)
        with pytest.raises(Unreachable) as caught:
            await pod_requests.bind(api_, "ml", "train", "uid-1", "node-1", {})
        assert caught.value.sent
        assert server.count(f"POST {POD}/binding") == 1  # and is not sent twice


async def test_a_bind_that_takes_too_long_may_have_been_carried_out() -> None:
    async with serve_api(timeout=0.2) as (server, api_):
        server.on("GET /version", NEW)
        server.on(f"POST {POD}/binding", hang)
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s") as caught:
            await pod_requests.bind(api_, "ml", "train", "uid-1", "node-1", {})
        assert caught.value.sent


@pytest.mark.parametrize("version", [NEW, OLD])
async def test_a_bind_whose_look_before_fails_was_surely_not_carried_out(version: Any) -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", cut if version is NEW else OLD)
        server.on(f"GET {POD}", cut)
        server.on(f"POST {POD}/binding", CREATED)
        with pytest.raises(Unreachable) as caught:
            await pod_requests.bind(api_, "ml", "train", "uid-1", "node-1", {})
        assert not caught.value.sent
        assert server.count(f"POST {POD}/binding") == 0


async def test_annotations_are_patched_with_the_uid_so_that_a_namesake_conflicts() -> None:
    async with serve_api() as (server, api_):
        server.on(f"PATCH {POD}", answer(pod("train", 6)), refuse(409, "Conflict"))
        await pod_requests.annotate(api_, "ml", "train", "uid-1", {"a": "b", "gone": None})
        assert server.asked[0].headers["Content-Type"] == "application/merge-patch+json"
        assert server.asked[0].body == {"metadata": {"uid": "uid-1", "annotations": {"a": "b", "gone": None}}}
        with pytest.raises(ApiError) as caught:
            await pod_requests.annotate(api_, "ml", "train", "uid-1", {"a": "b"})
        assert caught.value.status == 409


async def test_an_eviction_is_of_the_pod_that_is_meant() -> None:
    async with serve_api() as (server, api_):
        server.on(f"POST {POD}/eviction", CREATED)
        await pod_requests.evict(api_, "ml", "train", "uid-1")
        (asked,) = server.asked
    assert asked.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "train", "namespace": "ml"},
        "deleteOptions": {"preconditions": {"uid": "uid-1"}},
    }
