"""Single requests: what is sent, and what comes back when things go wrong."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest
from aiohttp import web

from gpushare.core.facts import objects
from gpushare.kube import client, models
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import ApiError, Malformed, Unreachable
from tests.support.scripted_api import answer, cut, hang, page, pod, refuse, serve_api

PODS = "/api/v1/pods"
POD = "/api/v1/namespaces/ml/pods/train"
NODE = "/api/v1/nodes/gpu-a"
NEW, OLD = answer({"major": "1", "minor": "36"}), answer({"major": "1", "minor": "22+"})
CREATED = answer({"kind": "Status", "status": "Success"}, 201)


async def names(api_: client.Api, **more: Any) -> tuple[list[str], list[str]]:
    items, versions = [], []
    async for got, version in api_.list_pages(PODS, objects.Pod, **more):
        items += [item.metadata.name for item in got]
        versions.append(version)
    return items, versions


async def test_a_list_is_asked_for_in_pages_without_a_resource_version() -> None:
    async with serve_api() as (server, api_):
        server.on(
            f"GET {PODS}",
            page([pod("a", 1), pod("b", 2)], "9", "next&1"),
            page([pod("c", 3)], "9", "next 2"),
            page([], "9"),
        )
        assert await names(api_, params={"fieldSelector": "x!=y"}) == (["a", "b", "c"], ["9", "9", "9"])
        assert [asked.query for asked in server.asked] == [
            {"limit": "25", "fieldSelector": "x!=y"},
            {"limit": "500", "fieldSelector": "x!=y", "continue": "next&1"},
            {"limit": "500", "fieldSelector": "x!=y", "continue": "next 2"},
        ]


async def test_pages_of_large_objects_get_shorter() -> None:
    async with serve_api() as (server, api_):
        large = [pod(str(i), i, annotations={"x": "y" * (1 << 20)}) for i in range(2)]
        server.on(f"GET {PODS}", page(large, "9", "next"), page([], "9"))
        await names(api_)
        assert [asked.query["limit"] for asked in server.asked] == ["25", "3"]


async def test_an_empty_list_may_be_null() -> None:
    async with serve_api() as (server, api_):
        server.on(f"GET {PODS}", answer({"metadata": {"resourceVersion": "4"}, "items": None}))
        assert await names(api_) == ([], ["4"])


async def test_a_410_between_pages_is_raised() -> None:
    async with serve_api() as (server, api_):
        server.on(f"GET {PODS}", page([pod("a", 1)], "9", "next"), refuse(410, "Expired"))
        with pytest.raises(ApiError) as caught:
            await names(api_)
        assert caught.value.status == 410


@pytest.mark.parametrize("body", [{"items": []}, {"metadata": {"resourceVersion": "1"}, "items": [{"spec": 7}]}, "x"])
async def test_a_list_that_is_none_is_malformed(body: object) -> None:
    async with serve_api() as (server, api_):
        server.on(f"GET {PODS}", answer(body))
        with pytest.raises(Malformed):
            await names(api_)


async def test_a_pod_that_is_not_there_is_none() -> None:
    async with serve_api() as (server, api_):
        server.on(f"GET {POD}", answer(pod("train", 5)), refuse(404, "NotFound"), refuse(500, "InternalError"))
        found = await api_.get_pod("ml", "train")
        assert found
        assert found.metadata.uid == "uid-train"
        assert await api_.get_pod("ml", "train") is None
        with pytest.raises(ApiError):
            await api_.get_pod("ml", "train")


async def test_a_bind_is_one_write_with_uid_and_annotations() -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", NEW)
        server.on(f"POST {POD}/binding", CREATED)
        await api_.bind("ml", "train", "uid-1", "node-1", {"a": "b"})
        await api_.bind("ml", "train", "uid-1", "node-1", {})
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
            await api_.bind("ml", "train", "uid-1", "node-1", {})
        assert (caught.value.status, caught.value.reason, caught.value.message) == (409, "Conflict", "already assigned")


async def test_before_1_23_the_uid_is_looked_at_before_the_bind() -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", OLD)
        server.on(f"GET {POD}", answer(pod("train", 5)), refuse(404, "NotFound"))
        server.on(f"POST {POD}/binding", CREATED)
        await api_.bind("ml", "train", "uid-train", "node-1", {})
        assert server.count(f"POST {POD}/binding") == 1
        with pytest.raises(ApiError) as caught:
            await api_.bind("ml", "train", "uid-train", "node-1", {})
        assert caught.value.status == 404
        server.on(f"GET {POD}", answer(pod("train", 5)))
        with pytest.raises(ApiError) as caught:
            await api_.bind("ml", "train", "uid-of-its-namesake", "node-1", {})
        assert caught.value.status == 409
        assert server.count(f"POST {POD}/binding") == 1


async def test_a_bind_that_is_cut_off_may_have_been_carried_out() -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", NEW)
        server.on(f"POST {POD}/binding", cut)
        with pytest.raises(Unreachable) as caught:
            await api_.bind("ml", "train", "uid-1", "node-1", {})
        assert caught.value.sent
        assert server.count(f"POST {POD}/binding") == 1  # and is not sent twice


async def test_a_bind_that_takes_too_long_may_have_been_carried_out() -> None:
    async with serve_api(timeout=0.2) as (server, api_):
        server.on("GET /version", NEW)
        server.on(f"POST {POD}/binding", hang)
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s") as caught:
            await api_.bind("ml", "train", "uid-1", "node-1", {})
        assert caught.value.sent


@pytest.mark.parametrize("version", [NEW, OLD])
async def test_a_bind_whose_look_before_fails_was_surely_not_carried_out(version: Any) -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", cut if version is NEW else OLD)
        server.on(f"GET {POD}", cut)
        server.on(f"POST {POD}/binding", CREATED)
        with pytest.raises(Unreachable) as caught:
            await api_.bind("ml", "train", "uid-1", "node-1", {})
        assert not caught.value.sent
        assert server.count(f"POST {POD}/binding") == 0


async def fails(server: str) -> Unreachable:
    async with client.connect(Access(server), timeout=0.1) as api_:
        with pytest.raises(Unreachable) as caught:
            await api_.version()
        return caught.value


async def test_a_refused_connection_was_surely_not_carried_out(unused_tcp_port: int) -> None:
    error = await fails(f"http://127.0.0.1:{unused_tcp_port}")
    assert (error.message, error.sent) == ("connection refused", False)


async def test_an_unknown_host_was_surely_not_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    error = await fails("http://no-such-host.invalid")
    assert (error.message, error.sent) == ("no such host: no-such-host.invalid", False)


async def test_a_server_that_does_not_speak_tls_was_surely_not_sent_anything() -> None:
    async with serve_api() as (server, _):
        error = await fails(server.url.replace("http", "https"))
        assert error.message.startswith("no TLS connection: ")
        assert not error.sent


async def test_a_connection_that_is_not_accepted_in_time_was_surely_not_carried_out() -> None:
    held = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()  # no TLS handshake
        writer.close()

    listening = await asyncio.start_server(mute, "127.0.0.1", 0)
    try:
        port = listening.sockets[0].getsockname()[1]
        error = await fails(f"https://127.0.0.1:{port}")
        assert (error.message, error.sent) == ("no connection within 0.05 s", False)
    finally:
        held.set()
        listening.close()
        await listening.wait_closed()


async def test_annotations_are_patched_with_the_uid_so_that_a_namesake_conflicts() -> None:
    async with serve_api() as (server, api_):
        server.on(f"PATCH {POD}", answer(pod("train", 6)), refuse(409, "Conflict"))
        await api_.patch_pod_annotations("ml", "train", "uid-1", {"a": "b", "gone": None})
        assert server.asked[0].headers["Content-Type"] == "application/merge-patch+json"
        assert server.asked[0].body == {"metadata": {"uid": "uid-1", "annotations": {"a": "b", "gone": None}}}
        with pytest.raises(ApiError) as caught:
            await api_.patch_pod_annotations("ml", "train", "uid-1", {"a": "b"})
        assert caught.value.status == 409


async def test_a_node_is_patched_where_annotations_and_capacity_are() -> None:
    async with serve_api() as (server, api_):
        server.on(f"PATCH {NODE}", answer({"metadata": {"name": "gpu-a", "annotations": {"a": "b"}}}))
        server.on(f"PATCH {NODE}/status", answer({"status": {"capacity": {"cpu": "2"}}}), refuse(404, "NotFound"))
        annotated = await api_.patch_node_annotations("gpu-a", {"a": "b"})
        counted = await api_.patch_node_capacity("gpu-a", {"aliyun.com/gpu-mem": 30720, "aliyun.com/gpu-count": 0})
        assert (annotated.metadata.annotations, counted.status.capacity) == ({"a": "b"}, {"cpu": "2"})
        assert [asked.headers["Content-Type"] for asked in server.asked] == ["application/merge-patch+json"] * 2
        assert [asked.body for asked in server.asked] == [
            {"metadata": {"annotations": {"a": "b"}}},
            {"status": {"capacity": {"aliyun.com/gpu-mem": "30720", "aliyun.com/gpu-count": "0"}}},
        ]
        with pytest.raises(ApiError):
            await api_.patch_node_capacity("gpu-a", {})


async def test_a_policy_is_there_or_not_or_may_not_be_looked_at() -> None:
    async with serve_api() as (server, api_):
        path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/gpushare-pin"
        server.on(f"GET {path}", answer({"metadata": {"name": "gpushare-pin"}}), refuse(404), refuse(403, "Forbidden"))
        assert await api_.has_mutating_policy("gpushare-pin")
        assert not await api_.has_mutating_policy("gpushare-pin")
        with pytest.raises(ApiError) as caught:
            await api_.has_mutating_policy("gpushare-pin")
        assert caught.value.status == 403


@pytest.mark.parametrize("text", ["", "x", "1.x"])
async def test_a_version_that_is_none_is_malformed(text: str) -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", answer({"major": "1", "minor": text and f"v{text}"}))
        with pytest.raises(Malformed):
            await api_.version()


async def test_too_many_requests_say_when_to_come_again() -> None:
    async with serve_api() as (server, api_):
        server.on(
            "GET /version",
            refuse(429, "TooManyRequests", headers={"Retry-After": "7"}),
            refuse(429, headers={"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}),
            answer({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}}, 429),
        )
        for expected in (7.0, None, 3.0):
            with pytest.raises(ApiError) as caught:
                await api_.version()
            assert (caught.value.status, caught.value.retry_after) == (429, expected)


async def test_an_answer_of_a_proxy_in_between_is_an_answer_without_its_body() -> None:
    async def gateway(_: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="<html>secret</html>")

    async with serve_api() as (server, api_):
        server.on("GET /version", gateway)
        with pytest.raises(ApiError) as caught:
            await api_.version()
        assert str(caught.value) == "502 Bad Gateway"


async def test_a_redirection_is_not_followed() -> None:
    async with serve_api() as (server, api_):
        server.on("GET /version", answer({}, 302, {"Location": "http://elsewhere.invalid/"}))
        with pytest.raises(ApiError) as caught:
            await api_.version()
        assert caught.value.status == 302


async def test_a_page_that_is_no_json_is_malformed() -> None:
    async def portal(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>please log in</html>")

    async with serve_api() as (server, api_):
        server.on("GET /version", portal)
        with pytest.raises(Malformed, match=r"^/version: "):
            await api_.version()


async def test_a_body_that_is_cut_off_is_no_answer() -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"major"')
        assert request.transport
        request.transport.abort()
        return response

    async with serve_api() as (server, api_):
        server.on("GET /version", half)
        with pytest.raises(Unreachable):
            await api_.version()


async def test_names_are_quoted_and_never_reach_another_path() -> None:
    async with serve_api() as (server, api_):
        path = "/api/v1/namespaces/a%2Fb/pods/..%2F%3Fx%3D1%25%C3%A4"
        server.on(f"GET {path}", answer(pod("odd", 5)))
        assert await api_.get_pod("a/b", "../?x=1%ä") is not None
        for name in ("", ".", ".."):
            with pytest.raises(ApiError) as caught:
                await api_.get_pod("ml", name)
            assert caught.value.status == 422
        assert len(server.asked) == 1


async def test_an_event_goes_into_its_namespace() -> None:
    async with serve_api() as (server, api_):
        server.on("POST /api/v1/namespaces/ml/events", CREATED)
        reference = models.ObjectReference(kind="Pod", name="train", namespace="ml", uid="u")
        source = models.EventSource(component="gpushare")
        meta = models.ObjectMeta(name="train.1", namespace="ml")
        told = models.Event(meta, reference, "Normal", "R", "text", "t1", "t2", source, "gpushare")
        await api_.create_event(told)
        assert server.asked[0].body["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "train",
            "namespace": "ml",
            "uid": "u",
        }


@pytest.mark.parametrize(
    "ask",
    [
        lambda api_: api_.get_pod("ml", "train"),
        lambda api_: api_.patch_pod_annotations("ml", "train", "u", {}),
        lambda api_: api_.patch_node_annotations("gpu-a", {}),
        lambda api_: api_.version(),
    ],
)
async def test_every_request_ends_in_time(ask: Callable[[client.Api], Awaitable[object]]) -> None:
    async with serve_api(timeout=0.04) as (server, api_):
        for what in (f"GET {POD}", f"PATCH {POD}", f"PATCH {NODE}", "GET /version"):
            server.on(what, hang)
        with pytest.raises(Unreachable, match="no answer within"):
            await ask(api_)


async def test_a_watch_that_is_not_accepted_ends_in_time() -> None:
    async with serve_api(timeout=0.04) as (server, api_):
        server.on(f"WATCH {PODS}", hang)
        with pytest.raises(Unreachable, match="no answer within"):
            async with api_.watch(PODS, objects.Pod, "1"):
                pass


async def test_many_requests_run_side_by_side() -> None:
    async with serve_api() as (server, api_):
        gate, waiting = asyncio.Event(), 0

        async def gated(_: web.Request) -> web.StreamResponse:
            nonlocal waiting
            waiting += 1
            if waiting == 100:
                gate.set()
            await gate.wait()
            return web.json_response(pod("train", 1))

        server.on(f"GET {POD}", gated)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(api_.get_pod("ml", "train") for _ in range(100))), 5)
        assert waiting == 100
