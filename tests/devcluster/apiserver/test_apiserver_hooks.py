"""What the embedded API server offers to tests beyond the API: hooks, options, audit, a process of its own."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from gpushare.devcluster.apiserver.server import ApiServer
from tests.support import api_client
from tests.support.api_client import Api, configmap, pod


async def test_expiring_the_history_ends_open_watches_with_410(server: ApiServer, api: Api) -> None:
    version = (await api.get(api.pods)).version
    async with api.watch(api.pods, resourceVersion=version) as watch:
        server.store.expire_history()
        type_, error = await watch.next()
        assert (type_, error["code"], error["reason"], error["kind"]) == ("ERROR", 410, "Expired", "Status")
        assert await watch.event() is None
    async with api.watch(api.pods, resourceVersion=version) as watch:
        assert (await watch.next())[1]["code"] == 410
    fresh = (await api.get(api.pods)).version
    async with api.watch(api.pods, resourceVersion=fresh) as watch:
        await api.create(api.pods, pod())
        assert await watch.named(1) == [("ADDED", "train")]


async def test_too_old_may_also_come_as_the_status_of_the_answer(server: ApiServer, api: Api) -> None:
    version = (await api.get(api.pods)).version
    server.store.expire_history()
    server.expired_as_status = True
    answer = await api.get(api.pods, watch="true", resourceVersion=version)
    assert (answer.code, answer.reason) == (410, "Expired")


async def test_a_continue_token_can_expire(server: ApiServer, api: Api) -> None:
    for name in "abc":
        await api.create(api.configmaps, configmap(name))
    token = (await api.get(api.configmaps, limit=1)).body["metadata"]["continue"]
    await api.create(api.configmaps, configmap("d"))
    server.store.expire_continues()
    answer = await api.get(api.configmaps, limit=1, **{"continue": token})
    assert (answer.code, answer.reason) == (410, "Expired")
    assert "continue parameter is too old" in answer.message


async def test_a_frozen_cache_is_seen_by_who_allows_old_answers_only(server: ApiServer, api: Api) -> None:
    await api.create(api.pods, pod("old"))
    server.store.freeze()
    await api.create(api.pods, pod("new"))
    await api.bind("old", "node-1")
    assert (await api.get(api.pods)).names() == ["new", "old"]
    stale = await api.get(api.pods, resourceVersion="0")
    assert stale.names() == ["old"]
    assert "nodeName" not in (await api.get(f"{api.pods}/old", resourceVersion="0")).body["spec"]
    assert (await api.get(f"{api.pods}/new", resourceVersion="0")).code == 404
    async with api.watch(api.pods, resourceVersion="0") as watch:
        assert await watch.named(3) == [("ADDED", "old"), ("ADDED", "new"), ("MODIFIED", "old")]
    server.store.thaw()
    assert (await api.get(api.pods, resourceVersion="0")).names() == ["new", "old"]


async def test_a_watch_without_a_version_starts_with_what_is_there(api: Api) -> None:
    await api.create(api.pods, pod("a"))
    async with api.watch(api.pods) as watch:
        await api.create(api.pods, pod("b"))
        assert await watch.named(2) == [("ADDED", "a"), ("ADDED", "b")]


async def test_bookmarks_carry_the_version_and_null_containers(server: ApiServer, api: Api) -> None:
    version = (await api.get(api.pods)).version
    async with api.watch(api.pods, resourceVersion=version, allowWatchBookmarks="true") as watch:
        await api.create(api.configmaps, configmap())
        event = await watch.event()
        while event and event[1]["metadata"]["resourceVersion"] != str(server.store.revision):
            event = await watch.event()
    assert event == (
        "BOOKMARK",
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(server.store.revision)},
            "spec": {"containers": None},
            "status": {},
        },
    )


async def test_a_server_without_watch_lists_says_so_as_a_real_one(api: Api) -> None:
    answer = await api.get(api.pods, watch="true", sendInitialEvents="true", resourceVersionMatch="NotOlderThan")
    assert (answer.code, answer.reason) == (422, "Invalid")


async def test_what_only_a_real_server_can_do_is_refused_with_a_sentence(api: Api) -> None:
    await api.create(api.pods, pod())
    evict = await api.call("POST", f"{api.pods}/train/eviction", {})
    dry = await api.call("DELETE", f"{api.pods}/train", dryRun="All")
    in_its_body = await api.call("DELETE", f"{api.pods}/train", {"dryRun": ["All"]})  # as kubectl says it
    for answer in (evict, dry, in_its_body):
        assert (answer.code, answer.reason) == (501, "NotImplemented")
        assert "is not part of gpushare's test API server" in answer.message
    assert (await api.get(api.pods)).names() == ["train"]
    json_patch = await api.call("PATCH", f"{api.pods}/train", [], content_type="application/json-patch+json")
    assert json_patch.code == 415
    assert "application/merge-patch+json" in json_patch.message


async def test_a_body_beyond_the_limit_is_refused(api: Api) -> None:
    answer = await api.call("POST", api.configmaps, configmap(big="x" * 3_200_000))
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    async with ApiServer(slow_watch_seconds=0.1) as server, api_client.connect(server.url) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        writer.write(f"GET {api.configmaps}?watch=true HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b"200" in await asyncio.wait_for(reader.readline(), 5)
        for i in range(20):  # more than the buffers of two sockets hold
            await api.create(api.configmaps, configmap(f"big-{i}", data="x" * 1_000_000))
        await asyncio.sleep(0.5)
        received = await asyncio.wait_for(reader.read(), 5)
        assert len(received) < 20_000_000
        writer.close()


async def test_the_audit_lists_writes_and_what_became_of_them(server: ApiServer, api: Api) -> None:
    server.audit.clear()
    await api.create(api.pods, pod())
    await api.bind("train", "node-1")
    await api.bind("train", "node-2")
    await api.get(api.pods)
    bindings = [entry for entry in server.audit if entry.path.endswith("/binding")]
    assert [(entry.verb, entry.code) for entry in bindings] == [("create", 201), ("create", 409)]
    assert all("aiohttp" in entry.user_agent and entry.time > 0 for entry in server.audit)
    assert len(server.audit) == 3
    server.audit_on = False
    await api.call("DELETE", f"{api.pods}/train")
    assert len(server.audit) == 3


async def test_a_wrong_token_is_unauthorized() -> None:
    async with ApiServer(token="secret") as server, api_client.connect(server.url, "secret") as api:
        assert (await api.get("/version")).body["minor"] == "36"
        api.session.headers.clear()
        answer = await api.get("/version")
        assert (answer.code, answer.reason) == (401, "Unauthorized")
        api.session.headers["Authorization"] = "Bearer secret"


async def test_a_server_before_1_23_ignores_the_uid_of_a_binding() -> None:
    async with ApiServer(ignore_binding_uid=True, version="1.18") as server, api_client.connect(server.url) as api:
        await api.create(api.pods, pod())
        assert (await api.bind("train", "node-1", uid="another")).code == 201
        assert (await api.get("/version")).body["gitVersion"].startswith("v1.18")


async def test_capacity_can_be_copied_to_allocatable_as_kubelet_does() -> None:
    async with ApiServer(nodes_copy_capacity=True) as server, api_client.connect(server.url) as api:
        node = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}}
        await api.create("/api/v1/nodes", node)
        patched = await api.patch("/api/v1/nodes/n/status", {"status": {"capacity": {api_client.GPU_MEM: 7000}}})
        assert patched.body["status"]["allocatable"] == {"cpu": "3", api_client.GPU_MEM: "7k"}
        removed = await api.patch("/api/v1/nodes/n/status", {"status": {"capacity": {api_client.GPU_MEM: None}}})
        assert removed.body["status"]["allocatable"] == {"cpu": "3"}


async def test_loaded_objects_are_kept_as_given(server: ApiServer, api: Api) -> None:
    running = pod("p") | {"kind": "Pod", "status": {"phase": "Running"}}
    running["spec"]["nodeName"] = "n"
    running["metadata"]["namespace"] = "loaded"
    assert server.load([running, {"kind": "Node", "metadata": {"name": "n"}}]) == 2
    found = (await api.get("/api/v1/namespaces/loaded/pods/p")).body
    assert (found["status"], found["spec"]["nodeName"]) == ({"phase": "Running"}, "n")
    assert found["metadata"]["uid"]
    assert (await api.get("/api/v1/nodes")).names() == ["n"]


async def test_a_bare_loaded_pod_can_be_annotated_bound_and_deleted(server: ApiServer, api: Api) -> None:
    server.load([{"kind": "Pod", "metadata": {"name": "p", "namespace": api.namespace}, "spec": {"containers": []}}])
    assert (await api.patch(f"{api.pods}/p", {"metadata": {"annotations": {"a": "b"}}})).code == 200
    assert (await api.bind("p", "node-1")).code == 201
    assert (await api.call("DELETE", f"{api.pods}/p")).body["metadata"]["deletionGracePeriodSeconds"] == 30


@pytest.mark.parametrize(
    "oddity",
    [
        {"metadata": 5},
        {"metadata": {"name": 5}},
        {"metadata": {"name": "x", "labels": []}},
        {"spec": "x"},
        {"spec": {"containers": "x"}},
        {"spec": {"containers": [5]}},
        {"spec": {"containers": [{"resources": {"limits": "x"}}]}},
        {"status": []},
        {"involvedObject": "x"},
        {"target": 5},
    ],
)
async def test_no_body_makes_the_server_fail_without_a_status(api: Api, oddity: api_client.Object) -> None:
    body = {"metadata": {"name": "odd"}} | oddity
    await api.create(api.pods, pod())
    for path in (api.pods, api.configmaps, api.events, "/api/v1/nodes", f"{api.pods}/train/binding"):
        for method, target in (("POST", path), ("PATCH", f"{api.pods}/train"), ("DELETE", f"{api.pods}/none")):
            content_type = api_client.STRATEGIC if method == "PATCH" else "application/json"
            answer = await api.call(method, target, body, content_type=content_type)
            assert answer.code < 300 or answer.body["kind"] == "Status", (method, target)


async def test_a_strategic_patch_that_is_too_clever_is_refused(api: Api) -> None:
    await api.create(api.pods, pod())
    patch = {"metadata": {"labels": {"$patch": "replace"}}}
    answer = await api.patch(f"{api.pods}/train", patch, api_client.STRATEGIC)
    assert (answer.code, answer.reason) == (501, "NotImplemented")
    ordered = {"status": {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": [{"type": "Ready"}]}}
    assert (await api.patch(f"{api.pods}/train/status", ordered, api_client.STRATEGIC)).code == 200


async def test_deleting_a_namespace_deletes_what_is_in_it(api: Api) -> None:
    await api.create(api.pods, pod())
    await api.call("DELETE", f"/api/v1/namespaces/{api.namespace}")
    assert (await api.get("/api/v1/pods")).names() == []
    assert (await api.get(f"/api/v1/namespaces/{api.namespace}")).code == 404
    await api.make_namespace()


async def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    objects, config = tmp_path / "objects.jsonl", tmp_path / "kubeconfig"
    objects.write_text(json.dumps({"kind": "Node", "metadata": {"name": "n"}}) + "\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpushare.devcluster.apiserver.server", "--port", "0", "--token", "t"),
        *("--load", str(objects), "--kubeconfig-out", str(config)),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout is not None
    try:
        ready = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().split()
        url = json.loads(config.read_text())["clusters"][0]["cluster"]["server"]
        assert ready == ["ready", url]
        assert config.stat().st_mode & 0o077 == 0
        async with api_client.connect(url, "t") as api:
            assert (await api.get("/api/v1/nodes")).names() == ["n"]
    finally:
        process.terminate()
        code = await asyncio.wait_for(process.wait(), 10)
    assert code == 0


@pytest.mark.parametrize("path", ["/", "/metrics", "/apis/apps/v1/deployments", "/api/v1", "/api/v1/watch/pods"])
async def test_no_path_makes_the_server_fail(api: Api, path: str) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = await api.call(method, path, None if method == "GET" else {})
        assert answer.code in (200, 404, 405)
