"""The demo's nodes: the real `gpushare node` says what they have, and on the plugin node kubelet asks its plugin."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gpushare.core.facts import names
from gpushare.demo import env_check, nodes, objects
from gpushare.demo.workload import DemoWorkload
from gpushare.demo.world import TooLong
from gpushare.devcluster.apiserver.kinds import quantity
from gpushare.devcluster.cluster import DevCluster
from gpushare.devcluster.nodes import bare_node, gpu_uuid
from gpushare.gpu.device import Xid
from gpushare.gpu.simulated import Simulated
from gpushare.gpu.simulated_use import MIB
from gpushare.kube.auth import login
from gpushare.node.app import Node
from gpushare.node.part import Part
from tests.support import api_client
from tests.support.api_client import Api, Object
from tests.support.embedded_cluster import in_phase
from tests.support.wait import eventually, until

PLUGIN_NODE, SIZES, SELLER = "gpu-d", objects.NODES["gpu-d"].gpus, "gpu-e"
SHARING = {name: machine for name, machine in objects.NODES.items() if name != SELLER}
UUIDS = [gpu_uuid(PLUGIN_NODE, i) for i in range(len(SIZES))]


@contextlib.asynccontextmanager
async def machines(folder: Path) -> AsyncIterator[tuple[DevCluster, Api, dict[str, Path]]]:
    """The demo's cluster; nothing of ours runs in it yet."""
    made = [bare_node(name, machine.ip, version=machine.kubelet) for name, machine in objects.NODES.items()]
    with nodes.folders(folder) as kubelets:
        async with (
            DevCluster(nodes=made, folder=folder, kubelets=kubelets, moment=0.0) as dev,
            api_client.connect(dev.url) as api,
        ):
            await api.create("/api/v1/namespaces", {"metadata": {"name": objects.BY_PLUGIN}})
            yield dev, api, kubelets


@contextlib.asynccontextmanager
async def running(dev: DevCluster, kubelets: dict[str, Path]) -> AsyncIterator[dict[str, Part]]:
    """What runs on its nodes, once all GPUs are to be had."""
    async with nodes.running(login.Access(server=dev.url), kubelets, nodes.all_gpus()) as components:
        for name, machine in SHARING.items():
            await until(dev.server, has(dev, name, sum(machine.gpus), 2))
        await until(dev.server, lambda: _node(dev, SELLER)["status"]["allocatable"].get(names.NVIDIA_GPU) == "4")
        yield components


def held(components: dict[str, Part]) -> dict[str, int]:
    """By the table of the plugin."""
    node = components[PLUGIN_NODE]
    assert isinstance(node, Node)
    assert node.plugin is not None
    return node.plugin.held()


def has(dev: DevCluster, node: str, memory: int, count: int) -> Callable[[], bool]:
    """Whether so much can be had there, and so many whole GPUs."""

    def found() -> bool:
        offers = _node(dev, node)["status"]["allocatable"]
        return (offers.get(names.GPU_MEM), offers.get(names.GPU_COUNT)) == (quantity.canonical(memory), str(count))

    return found


def _node(dev: DevCluster, name: str) -> Object:
    entry = dev.server.store.get("nodes", name)
    assert entry is not None
    return entry.obj()


def pod(name: str, amount: int) -> Object:
    return objects.pod(name, objects.container("main", names.GPU_MEM, amount), namespace=objects.BY_PLUGIN)


async def bound(dev: DevCluster, api: Api, body: Object, *, gpu: int | None = None, phase: str = "Running") -> Object:
    """A pod that is bound to the plugin node, with the annotations of an extender if it is said where."""
    name, amount = body["metadata"]["name"], body["spec"]["containers"][0]["resources"]["limits"][names.GPU_MEM]
    path = f"/api/v1/namespaces/{objects.BY_PLUGIN}/pods"
    await api.create(path, body)
    notes = {} if gpu is None else {names.ALIYUN_IDX: str(gpu), names.ALLOCATION: json.dumps({"0": {gpu: amount}})}
    binding = {"metadata": {"name": name, "annotations": notes}, "target": {"kind": "Node", "name": PLUGIN_NODE}}
    await api.create(f"{path}/{name}/binding", binding)
    return await until(dev.server, in_phase(dev.server, objects.BY_PLUGIN, name, phase))


def environment(dev: DevCluster, name: str) -> dict[str, str]:
    return env_check.environment(dev.kubelet.logs(objects.BY_PLUGIN, name, "main"))


async def test_the_real_component_says_what_each_node_has(folder: Path) -> None:
    async with machines(folder) as (dev, _, kubelets):
        for name in objects.NODES:
            assert "annotations" not in _node(dev, name)["metadata"]
            assert names.GPU_MEM not in _node(dev, name)["status"]["capacity"]
        async with running(dev, kubelets):
            for name, machine in SHARING.items():
                said = json.loads(_node(dev, name)["metadata"]["annotations"][names.NODE_GPUS])
                assert (said["pin"], [gpu["total"] for gpu in said["gpus"]]) == (machine.pin, machine.gpus)
                assert all("simulated" in gpu["model"] for gpu in said["gpus"])
                capacity = _node(dev, name)["status"]["capacity"]
                assert (capacity[names.GPU_MEM], capacity[names.GPU_COUNT]) == (str(sum(machine.gpus)), "2")
        written = {entry.path for entry in dev.server.audit if entry.user_agent == nodes.AGENT}
        assert "/api/v1/nodes/gpu-a/status" in written
        assert "/api/v1/nodes/gpu-d/status" not in written, "there it is kubelet who says it"


async def test_a_container_of_the_plugin_node_is_told_what_allocate_answered(folder: Path) -> None:
    async with machines(folder) as (dev, api, kubelets), running(dev, kubelets) as components:
        made = await bound(dev, api, pod("p", 9000), gpu=1)
        assert not made["spec"]["containers"][0].get("env"), "nothing in its spec says so"
        assert environment(dev, "p") == {
            names.VISIBLE_DEVICES: UUIDS[1],
            names.ALIYUN_IDX: "1",
            names.ALIYUN_POD: "9000",
            names.ALIYUN_DEV: str(SIZES[1]),
            "ALIYUN_COM_GPU_MEM_CONTAINER": "9000",
        }
        assert held(components) == {UUIDS[1]: 9000}


async def test_a_running_container_uses_a_bit_less_than_it_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus: dict[str, Simulated] = {}
    made = nodes._gpus
    monkeypatch.setattr(nodes, "_gpus", lambda name, machine: gpus.setdefault(name, made(name, machine)))
    async with machines(folder) as (dev, api, kubelets), running(dev, kubelets) as components:
        status = (await bound(dev, api, pod("p", 9000), gpu=1))["status"]["containerStatuses"][0]
        owners = components[PLUGIN_NODE]._owners
        assert owners is not None
        await eventually(gpus[PLUGIN_NODE].workload)
        idle, busy = (await gpus[PLUGIN_NODE].sample()).gpus
        assert (idle.uuid, idle.processes) == (UUIDS[0], ())
        assert busy.processes is not None
        (process,) = busy.processes
        assert process.memory is not None
        assert 0.55 * 9000 < process.memory / MIB < 0.95 * 9000
        ((pid, owner),) = owners.of([process.pid, 1], ()).items()
        assert (pid, f"simulated://{owner.container_id}") == (process.pid, status["containerID"])
        await api.call("DELETE", f"/api/v1/namespaces/{objects.BY_PLUGIN}/pods/p")
        await eventually(lambda: not gpus[PLUGIN_NODE].workload())
        assert (await gpus[PLUGIN_NODE].sample()).gpus[1].processes == ()


async def test_the_node_that_sells_by_count_says_so_and_gives_its_gpu_to_four_pods(folder: Path) -> None:
    (uuid,) = (gpu_uuid(SELLER, i) for i in range(len(objects.NODES[SELLER].gpus)))
    async with machines(folder) as (dev, api, kubelets), running(dev, kubelets) as components:
        said = json.loads(_node(dev, SELLER)["metadata"]["annotations"][names.NODE_GPUS])
        assert (said["pin"], said["sold"]) == (
            "nvidia", [{"resource": names.NVIDIA_GPU, "replicas": 4, "sharing": "time-slicing"}]
        )  # fmt: skip
        for name in ("a", "b", "c", "d"):
            body = objects.pod(name, objects.container("main", names.NVIDIA_GPU, 1))
            await api.create("/api/v1/namespaces/default/pods", {**body, "spec": {**body["spec"], "nodeName": SELLER}})
            await until(dev.server, in_phase(dev.server, "default", name, "Running"))
            assert env_check.environment(dev.kubelet.logs("default", name, "main")) == {names.VISIBLE_DEVICES: uuid}
        workload = components[SELLER]._owners
        assert isinstance(workload, DemoWorkload)
        await eventually(lambda: len(workload.processes().get(uuid, ())) == 4)
        quarter = objects.NODES[SELLER].gpus[0] / 4
        assert all(0.6 * quarter <= one.memory_mib + 1 <= 0.95 * quarter + 1 for one in workload.processes()[uuid])


async def test_what_the_plugin_cannot_serve_fails_for_good_with_its_sentence(folder: Path) -> None:
    async with machines(folder) as (dev, api, kubelets), running(dev, kubelets):
        failed = await bound(dev, api, pod("large", SIZES[0] + 1), phase="Failed")
        assert failed["status"]["reason"] == "UnexpectedAdmissionError"
        assert "gpushare: " in failed["status"]["message"]
        await bound(dev, api, pod("next", 3000), gpu=0)


async def test_a_component_that_is_restarted_registers_anew_and_knows_what_is_held(folder: Path) -> None:
    async with machines(folder) as (dev, api, kubelets):
        async with running(dev, kubelets):
            await bound(dev, api, pod("first", 9000), gpu=0)
        await until(dev.server, has(dev, PLUGIN_NODE, 0, 0))
        async with running(dev, kubelets) as components:
            assert held(components) == {UUIDS[0]: 9000}
            await bound(dev, api, pod("second", 9000))  # bound by somebody who says nothing: there is one place left
            assert environment(dev, "second")[names.VISIBLE_DEVICES] == UUIDS[1]


async def test_an_unhealthy_gpu_of_the_plugin_node_withdraws_what_nobody_holds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus: dict[str, Simulated] = {}
    made = nodes._gpus
    monkeypatch.setattr(nodes, "_gpus", lambda name, machine: gpus.setdefault(name, made(name, machine)))
    async with machines(folder) as (dev, api, kubelets), running(dev, kubelets):
        await bound(dev, api, pod("p", 9000), gpu=0)
        gpus[PLUGIN_NODE].report(Xid(UUIDS[0], 79))
        await until(dev.server, has(dev, PLUGIN_NODE, 9000 + SIZES[1], 1))


async def test_a_component_that_fails_ends_the_block(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(node: Node) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Node, "run", broken)
    async with machines(folder) as (dev, _, kubelets):
        with pytest.raises(ExceptionGroup) as failure:
            async with nodes.running(login.Access(server=dev.url), kubelets, nodes.all_gpus()):
                await until(dev.server, lambda: None)
    assert failure.group_contains(ZeroDivisionError)


async def test_an_error_of_the_block_itself_stays_as_it_is(folder: Path) -> None:
    async with machines(folder) as (dev, _, kubelets):
        with pytest.raises(TooLong):
            async with nodes.running(login.Access(server=dev.url), kubelets, nodes.all_gpus()):
                raise TooLong


# Folders and logs


def test_sockets_are_in_the_demos_folder_if_their_paths_are_short_enough(folder: Path) -> None:
    with nodes.folders(folder) as found:
        assert found == {name: folder / name for name in ("gpu-c", PLUGIN_NODE, SELLER)}


def test_else_they_are_in_a_shorter_one_that_is_removed_as_well(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 80)
    with nodes.folders(deep) as found:
        sockets = found[PLUGIN_NODE] / nodes.LONGEST_SOCKET
        assert sockets.parent.parent.parent.is_dir()
        assert len(str(sockets).encode()) <= nodes.LONGEST_PATH
        assert deep not in sockets.parents
    assert not found[PLUGIN_NODE].parent.exists()


def test_no_socket_of_kubelet_or_plugin_has_a_longer_name() -> None:
    from gpushare.kubelet import paths
    from gpushare.node import kubelet_folder

    sockets = [paths.KUBELET_SOCKET, *kubelet_folder.SOCKETS.values()]
    names = [*(f"{paths.DEVICE_PLUGINS}/{name}" for name in sockets), paths.POD_RESOURCES]
    assert max(names, key=len) == nodes.LONGEST_SOCKET


async def test_each_line_of_the_log_says_of_which_node_it_is(folder: Path) -> None:
    before = logging.root.handlers[:], logging.root.level
    nodes.log_to(folder / "nodes.log")
    try:
        async with machines(folder) as (dev, _, kubelets), running(dev, kubelets):
            await asyncio.sleep(0)
    finally:
        for handler in logging.root.handlers:
            handler.close()
        logging.root.handlers, level = before
        logging.root.setLevel(level)
    lines: list[dict[str, Any]] = [json.loads(line) for line in (folder / "nodes.log").read_text().splitlines()]
    assert {line["node"] for line in lines if line["msg"] == "published"} == set(objects.NODES)
    assert {line["node"] for line in lines if line["msg"] == "registered"} == {PLUGIN_NODE, SELLER}
