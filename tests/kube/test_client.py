"""Single requests: what is sent, and what comes back when things go wrong."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest
from aiohttp import web

from gpushare.core.facts import objects
from gpushare.kube import client, models, requests, resources
from gpushare.kube.auth.login import Access
from gpushare.kube.errors import ApiError, Malformed, Unreachable
from gpushare.kube.requests import Request
from tests.support.scripted_api import answer, hang, page, pod, refuse, serve_api

PODS = "/api/v1/pods"
POD = "/api/v1/namespaces/ml/pods/train"
SOME_PODS = "/api/v1/namespaces/kube-system/pods"
POLICY = requests.read(resources.MUTATING_POLICIES, "", "gpushare-pin")
NAMING: list[Callable[[str], Request]] = [
    lambda name: requests.read(resources.PODS, "ml", name),
    lambda name: requests.read(resources.PODS, name, "train"),
    lambda name: requests.patch(resources.NODES, "", name, {}),
    lambda name: requests.patch_status(resources.PODS, "ml", name, {}),
    lambda name: requests.apply(resources.PODS, "ml", name, {}, manager="me"),
    lambda name: requests.delete(resources.PODS, "ml", name),  # with no name it would delete all
    lambda name: requests.delete(resources.PODS, name, "train"),
]
CREATED = answer({"kind": "Status", "status": "Success"}, 201)


def train() -> Request:
    return requests.read(resources.PODS, "ml", "train")


async def names(api_: client.Api, **more: Any) -> tuple[list[str], list[str]]:
    items, versions = [], []
    async for got, version in api_.list_pages(resources.PODS, objects.Pod, **more):
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
        assert await names(api_, query={"fieldSelector": "x!=y"}) == (["a", "b", "c"], ["9", "9", "9"])
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


async def fails(server: str) -> Unreachable:
    async with client.connect(Access(server), timeout=1.0) as api_:
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
        assert (error.message, error.sent) == ("no connection within 0.5 s", False)
    finally:
        held.set()
        listening.close()
        await listening.wait_closed()


async def test_a_policy_is_there_or_not_or_may_not_be_looked_at() -> None:
    async with serve_api() as (server, api_):
        path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/gpushare-pin"
        assert path == POLICY.path
        server.on(f"GET {path}", answer({"metadata": {"name": "gpushare-pin"}}), refuse(404), refuse(403, "Forbidden"))
        assert await api_.find(POLICY, models.Versioned)
        assert await api_.find(POLICY, models.Versioned) is None
        with pytest.raises(ApiError) as caught:
            await api_.find(POLICY, models.Versioned)
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
        odd = await api_.fetch(requests.read(resources.PODS, "a/b", "../?x=1%ä"), objects.Pod)
        assert odd.metadata.name == "odd"
        for build, name in itertools.product(NAMING, ("", ".", "..")):
            with pytest.raises(ApiError) as caught:
                await api_.fetch(build(name), objects.Pod)
            assert caught.value.status == 422
        assert len(server.asked) == 1


async def test_an_event_goes_into_its_namespace() -> None:
    async with serve_api() as (server, api_):
        server.on("POST /api/v1/namespaces/ml/events", CREATED)
        reference = models.ObjectReference(kind="Pod", name="train", namespace="ml", uid="u")
        source = models.EventSource(component="gpushare")
        meta = models.ObjectMeta(name="train.1", namespace="ml")
        told = models.Event(meta, reference, "Normal", "R", "text", "t1", "t2", source, "gpushare")
        await api_.send(requests.create(resources.EVENTS, "ml", told))
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
        lambda api_: api_.fetch(train(), objects.Pod),
        lambda api_: api_.send(requests.patch(resources.PODS, "ml", "train", {})),
        lambda api_: api_.send(requests.delete(resources.PODS, "ml", "train")),
        lambda api_: api_.revision(resources.PODS),
        lambda api_: api_.version(),
    ],
)
async def test_every_request_ends_in_time(ask: Callable[[client.Api], Awaitable[object]]) -> None:
    async with serve_api(timeout=0.4) as (server, api_):
        for what in (f"GET {POD}", f"PATCH {POD}", f"DELETE {POD}", f"GET {SOME_PODS}", "GET /version"):
            server.on(what, hang)
        with pytest.raises(Unreachable, match="no answer within"):
            await ask(api_)


async def test_a_watch_that_is_not_accepted_ends_in_time() -> None:
    async with serve_api(timeout=0.4) as (server, api_):
        server.on(f"WATCH {PODS}", hang)
        with pytest.raises(Unreachable, match="no answer within"):
            async with api_.watch(resources.PODS, objects.Pod, "1"):
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
            await asyncio.wait_for(asyncio.gather(*(api_.fetch(train(), objects.Pod) for _ in range(100))), 5)
        assert waiting == 100
