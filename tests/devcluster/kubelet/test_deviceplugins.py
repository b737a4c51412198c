"""Where device plugins may register, the simulated kubelet asks them for every pod and reports what they list."""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts import names as keys
from gpushare.devcluster.cluster import DevCluster
from tests.devcluster.kubelet import plugins
from tests.devcluster.kubelet.plugins import Plugin, registered
from tests.support import embedded_cluster
from tests.support.api_client import Api, Object
from tests.support.embedded_cluster import get, in_phase, objects
from tests.support.wait import eventually, until

RESOURCE = "example.com/disk"
NODE, OTHER = "gpu-a", "gpu-b"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short one: paths of sockets have a limit."""
    with tempfile.TemporaryDirectory(prefix="kubelet-", dir="/tmp") as name:
        yield Path(name)


@contextlib.asynccontextmanager
async def cluster(folder: Path, **more: Any) -> AsyncIterator[tuple[DevCluster, Api, Path]]:
    async with embedded_cluster.cluster(folder, kubelets={NODE: folder / NODE}, **more) as (dev, api):
        yield dev, api, folder / NODE


def pod(name: str, *amounts: int, resource: str = RESOURCE, **spec: Any) -> Object:
    containers = [
        {"name": f"c{i}", "image": "i", "resources": {"limits": {resource: str(n)} if n else {}}}
        for i, n in enumerate(amounts)
    ]
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": containers, **spec}}


async def start(dev: DevCluster, api: Api, body: Object, phase: str = "Running", node: str = NODE) -> Object:
    name = body["metadata"]["name"]
    await api.create(api.pods, body)
    assert (await api.bind(name, node)).code == 201
    return await until(dev.server, in_phase(dev.server, api.namespace, name, phase))


def said(dev: DevCluster, node: str = NODE) -> tuple[str | None, str | None]:
    """Capacity and allocatable."""
    entry = dev.server.store.get("nodes", node)
    assert entry is not None
    status = entry.obj()["status"]
    return status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE)


def says(dev: DevCluster, capacity: str, allocatable: str) -> Callable[[], bool]:
    return lambda: said(dev) == (capacity, allocatable)


def environment(dev: DevCluster, api: Api, name: str, container: str = "c0") -> dict[str, str]:
    return dict(line.split("=", 1) for line in dev.kubelet.logs(api.namespace, name, container).splitlines())


async def test_the_plugins_answer_is_what_the_container_is_told_and_its_own_word_wins(folder: Path) -> None:
    plugin = Plugin({"a": True, "b": True, "c": True})
    async with cluster(folder) as (dev, api, kubelet), registered(plugin, RESOURCE, kubelet):
        await until(dev.server, says(dev, "3", "3"))
        body = pod("p", 2, 0)
        body["spec"]["containers"][0]["env"] = [{"name": "BOTH", "value": "spec"}, {"name": "OWN", "value": "1"}]
        await start(dev, api, body)
        (ids,) = plugin.asked
        assert len(ids) == 2
        assert environment(dev, api, "p") == {"GIVEN": ",".join(sorted(ids)), "BOTH": "spec", "OWN": "1"}
        assert environment(dev, api, "p", "c1") == {}


async def test_what_a_pod_has_nobody_else_gets_until_it_has_ended(folder: Path) -> None:
    plugin = Plugin({"a": True, "b": True})
    async with cluster(folder) as (dev, api, kubelet), registered(plugin, RESOURCE, kubelet):
        await until(dev.server, says(dev, "2", "2"))
        await start(dev, api, pod("first", 1))
        await start(dev, api, pod("second", 1))
        assert plugin.asked[0] != plugin.asked[1]
        dev.kubelet.finish(api.namespace, "first")
        await until(dev.server, in_phase(dev.server, api.namespace, "first", "Succeeded"))
        await start(dev, api, pod("third", 1))
        assert plugin.asked[2] == plugin.asked[0]
        await api.call("DELETE", f"{api.pods}/second")
        await until(dev.server, lambda: get(dev.server, api.namespace, "second") is None)
        await start(dev, api, pod("fourth", 1))
        assert plugin.asked[3] == plugin.asked[1]


async def test_a_container_that_is_started_again_is_told_the_same_and_nobody_is_asked(folder: Path) -> None:
    plugin = Plugin({"a": True, "b": True})
    async with cluster(folder, restart_seconds=0.01) as (dev, api, kubelet), registered(plugin, RESOURCE, kubelet):
        await until(dev.server, says(dev, "2", "2"))
        await start(dev, api, pod("p", 1, restartPolicy="Always"))
        before = environment(dev, api, "p")
        dev.kubelet.finish(api.namespace, "p", 1)

        def restarted() -> bool:
            found = get(dev.server, api.namespace, "p")
            status = found["status"]["containerStatuses"][0] if found else {}
            return status["restartCount"] == 1 and "running" in status["state"]

        await until(dev.server, restarted)
        assert environment(dev, api, "p") == before
        assert len(plugin.asked) == 1


async def test_a_refusal_is_final_and_explained(folder: Path) -> None:
    plugin = Plugin({"a": True})
    plugin.refuses = "not for you"
    async with cluster(folder) as (dev, api, kubelet), registered(plugin, RESOURCE, kubelet):
        await until(dev.server, says(dev, "1", "1"))
        failed = await start(dev, api, pod("p", 1), phase="Failed")
        status = failed["status"]
        why = "Allocate failed due to rpc error: code = FailedPrecondition desc = not for you, which is unexpected"
        assert (status["reason"], status["message"]) == ("UnexpectedAdmissionError", f"Pod was rejected: {why}")
        assert "containerStatuses" not in status
        assert status["startTime"]
        (event,) = [found for found in objects(dev.server, "events") if found["type"] == "Warning"]
        assert (event["reason"], event["message"]) == ("UnexpectedAdmissionError", why)
        plugin.refuses = ""
        await start(dev, api, pod("next", 1))
        assert get(dev.server, api.namespace, "p") == failed, "nobody tries again"
        answer = await api.get(f"{api.pods}/p/log")
        assert (answer.code, answer.message) == (400, 'container "c0" in pod "p" is waiting to start')


async def test_a_pod_that_is_refused_is_replaced_by_whoever_wants_it(folder: Path) -> None:
    plugin = Plugin({"a": True})
    plugin.refuses = "not yet"
    async with cluster(folder) as (dev, api, kubelet), registered(plugin, RESOURCE, kubelet):
        await until(dev.server, says(dev, "1", "1"))
        template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": pod("", 1)["spec"]["containers"]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": template}
        path = f"/apis/apps/v1/namespaces/{api.namespace}/deployments"
        await api.create(path, {"metadata": {"name": "w"}, "spec": spec})
        (first,) = await until(dev.server, lambda: embedded_cluster.names(dev.server, app="w"))
        await api.bind(first, NODE)
        await until(dev.server, in_phase(dev.server, api.namespace, first, "Failed"))
        names = await until(dev.server, lambda: [n for n in embedded_cluster.names(dev.server, app="w") if n != first])
        plugin.refuses = ""
        await api.bind(names[0], NODE)
        await until(dev.server, in_phase(dev.server, api.namespace, names[0], "Running"))


async def test_more_than_there_is_is_refused_in_kubelets_words(folder: Path) -> None:
    async with cluster(folder) as (dev, api, kubelet), registered(Plugin({"a": True}), RESOURCE, kubelet):
        await until(dev.server, says(dev, "1", "1"))
        failed = await start(dev, api, pod("p", 2), phase="Failed")
        wanted = f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1"
        assert wanted in failed["status"]["message"]


async def test_the_nodes_capacity_follows_the_list(folder: Path) -> None:
    plugin = Plugin({f"d{i}": True for i in range(7000)})
    async with cluster(folder) as (dev, api, kubelet):
        assert said(dev) == (None, None)
        async with registered(plugin, RESOURCE, kubelet):
            await until(dev.server, says(dev, "7k", "7k"))
            plugin.list({"a": True, "b": False})
            await until(dev.server, says(dev, "2", "1"))
            await api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {"some": "note"}}})
            assert said(dev) == ("2", "1"), "whatever else is written there"
            await api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": {RESOURCE: "9"}}})
            await until(dev.server, says(dev, "2", "1"))
            assert said(dev, OTHER) == (None, None)
        await until(dev.server, says(dev, "2", "0"))  # the plugin is gone


async def test_a_quiet_node_is_not_written_to_again(folder: Path) -> None:
    async with cluster(folder) as (dev, api, kubelet), registered(Plugin({"a": True}), RESOURCE, kubelet):
        await until(dev.server, says(dev, "1", "1"))
        before = dev.server.store.get("nodes", NODE)
        clock = pod("clock", 0)
        clock["spec"]["containers"][0]["command"] = ["sleep", "0.3"]  # it is reported some times meanwhile
        await start(dev, api, clock, phase="Succeeded")
        assert dev.server.store.get("nodes", NODE) is before


async def test_a_node_that_is_made_anew_says_it_again(folder: Path) -> None:
    async with cluster(folder) as (dev, api, kubelet), registered(Plugin({"a": True}), RESOURCE, kubelet):
        await until(dev.server, says(dev, "1", "1"))
        await api.call("DELETE", f"/api/v1/nodes/{NODE}")
        await api.create("/api/v1/nodes", {"metadata": {"name": NODE}, "status": {"capacity": {"cpu": "1"}}})
        await until(dev.server, says(dev, "1", "1"))


async def test_a_plugin_that_is_restarted_registers_anew_and_its_pods_keep_what_they_have(folder: Path) -> None:
    async with cluster(folder) as (dev, api, kubelet):
        plugin = Plugin({"a": True, "b": True})
        async with registered(plugin, RESOURCE, kubelet):
            await until(dev.server, says(dev, "2", "2"))
            await start(dev, api, pod("first", 1))
        await until(dev.server, says(dev, "2", "0"))
        assert get(dev.server, api.namespace, "first") is not None
        failed = await start(dev, api, pod("between", 1), phase="Failed")
        assert "no healthy devices present" in failed["status"]["message"]
        again = Plugin({"a": True, "b": True})
        async with registered(again, RESOURCE, kubelet):
            await until(dev.server, says(dev, "2", "2"))
            await start(dev, api, pod("second", 1))
            assert again.asked[0] != plugin.asked[0]


async def test_a_pod_that_is_deleted_while_its_plugin_thinks_harms_nobody(folder: Path) -> None:
    plugin = Plugin({"a": True})
    plugin.answers.clear()
    async with cluster(folder) as (dev, api, kubelet), registered(plugin, RESOURCE, kubelet):
        await until(dev.server, says(dev, "1", "1"))
        await api.create(api.pods, pod("p", 1))
        await api.bind("p", NODE)
        await eventually(lambda: plugin.asked)
        await api.call("DELETE", f"{api.pods}/p")
        await until(dev.server, lambda: get(dev.server, api.namespace, "p") is None)
        plugin.answers.set()
        await start(dev, api, pod("next", 1))
        assert environment(dev, api, "next")["GIVEN"] == "a"


async def test_pods_are_admitted_one_at_a_time(folder: Path) -> None:
    plugin = Plugin({"a": True, "b": True})
    plugin.answers.clear()
    async with cluster(folder) as (dev, api, kubelet), registered(plugin, RESOURCE, kubelet):
        await until(dev.server, says(dev, "2", "2"))
        for name in ("first", "second"):
            await api.create(api.pods, pod(name, 1))
            await api.bind(name, NODE)
        await eventually(lambda: plugin.asked)
        await start(dev, api, pod("elsewhere", 1), node=OTHER)  # others do not wait
        assert len(plugin.asked) == 1
        plugin.answers.set()
        for name in ("first", "second"):
            await until(dev.server, in_phase(dev.server, api.namespace, name, "Running"))
        assert sorted(plugin.asked) == [["a"], ["b"]]


async def test_only_labelled_namespaces_are_pinned_directly_where_some_nodes_have_plugins(folder: Path) -> None:
    async with cluster(folder) as (_, api, _):
        body = pod("p", 1, resource=keys.GPU_MEM)
        for name, labels in (("plain", {}), ("direct", {"gpushare.io/pin": "direct"})):
            await api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        pinned = {}
        for name in ("default", "plain", "direct"):
            made = await api.create(f"/api/v1/namespaces/{name}/pods", body)
            env = made["spec"]["containers"][0].get("env") or []
            pinned[name] = keys.VISIBLE_DEVICES in [entry["name"] for entry in env]
        assert pinned == {"default": True, "plain": False, "direct": True}


async def test_without_such_nodes_every_namespace_is_pinned_directly(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (_, api):
        await api.create("/api/v1/namespaces", {"metadata": {"name": "plain"}})
        made = await api.create("/api/v1/namespaces/plain/pods", pod("p", 1, resource=keys.GPU_MEM))
        assert made["spec"]["containers"][0]["env"][-1]["name"] == keys.VISIBLE_DEVICES


def test_a_cluster_without_such_nodes_loads_no_grpc() -> None:
    program = (
        "import sys, gpushare.devcluster.cluster; sys.exit(bool({'grpc', 'google.protobuf'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0


async def test_it_leaves_no_socket_behind(folder: Path) -> None:
    async with cluster(folder) as (_, _, kubelet), registered(Plugin({"a": True}), RESOURCE, kubelet):
        there = {path.name for path in kubelet.rglob("*.sock")}
        assert there == {"kubelet.sock", plugins.SOCKET}
    assert [path for path in kubelet.rglob("*") if path.is_socket()] == []
