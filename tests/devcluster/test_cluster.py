"""The embedded cluster as a whole: it starts, shows its nodes, ends, and does not hide its own faults."""

import json
from pathlib import Path

import msgspec
import pytest

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import objects as core_api
from gpushare.core.facts.model import Pin
from gpushare.devcluster.cluster import DevCluster
from gpushare.devcluster.nodes import ROOM, bare_node, gpu_uuid, simulated_node
from tests.support import api_client, embedded_cluster, wait


def test_a_simulated_node_is_what_the_extender_takes_for_a_node_that_pins_directly() -> None:
    node = msgspec.convert(simulated_node("gpu-b", "10.0.0.12", [24268, 11178], "Tesla P40"), core_api.Node)
    facts = node_gpus.read(node, frozenset())
    assert facts is not None
    assert (facts.pin, facts.unit, facts.blocked) == (Pin.DIRECT, "MiB", None)
    assert [(gpu.index, gpu.total, gpu.healthy, gpu.model) for gpu in facts.gpus] == [
        (0, 24268, True, "Tesla P40"),
        (1, 11178, True, "Tesla P40"),
    ]
    assert not node_gpus.contradicts(node)


def test_a_bare_node_leaves_it_to_others_to_say_what_gpus_it_has() -> None:
    bare = bare_node("gpu-b", "10.0.0.12", version="v1.35.0")
    assert node_gpus.read(msgspec.convert(bare, core_api.Node), frozenset()) is None
    assert bare["status"]["nodeInfo"]["kubeletVersion"] == "v1.35.0"
    assert bare["status"]["capacity"].keys() == bare["status"]["allocatable"].keys() == ROOM.keys()
    simulated_node("gpu-b", "10.0.0.12")  # which is made of one, and changes no other
    assert bare == bare_node("gpu-b", "10.0.0.12", version="v1.35.0")


def test_the_same_node_has_the_same_gpus_and_no_other_has_them() -> None:
    uuids = [gpu_uuid(name, i) for name in ("gpu-a", "gpu-b") for i in range(2)]
    assert len(set(uuids)) == 4
    assert simulated_node("gpu-a", "1") == simulated_node("gpu-a", "1")
    assert uuids[0] in simulated_node("gpu-a", "1")["metadata"]["annotations"]["gpushare.io/gpus"]


async def test_it_writes_a_kubeconfig_and_has_its_nodes(tmp_path: Path) -> None:
    async with DevCluster(nodes=embedded_cluster.NODES, folder=tmp_path, token="secret") as dev:
        assert dev.kubeconfig == tmp_path / "kubeconfig"
        config = json.loads(dev.kubeconfig.read_text())
        assert config["clusters"][0]["cluster"]["server"] == dev.url
        async with api_client.connect(dev.url, config["users"][0]["user"]["token"]) as api:
            nodes = (await api.get("/api/v1/nodes")).body["items"]
            assert [node["metadata"]["name"] for node in nodes] == ["gpu-a", "gpu-b"]
            status = nodes[1]["status"]
            assert status["allocatable"]["aliyun.com/gpu-mem"] == "35446"
            assert {condition["type"]: condition["status"] for condition in status["conditions"]}["Ready"] == "True"
            assert all(condition["lastHeartbeatTime"] for condition in status["conditions"])


async def test_what_a_node_component_writes_reaches_allocatable(tmp_path: Path) -> None:
    async with embedded_cluster.cluster(tmp_path) as (_, api):
        change = {"status": {"capacity": {"aliyun.com/gpu-mem": "16276"}}}
        patched = await api.patch("/api/v1/nodes/gpu-a/status", change)
        assert patched.body["status"]["allocatable"]["aliyun.com/gpu-mem"] == "16276"


async def test_two_clusters_of_the_same_nodes_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with (
        embedded_cluster.cluster(tmp_path) as (one, api),
        embedded_cluster.cluster(tmp_path / "other") as (other, _),
    ):
        assert one.url != other.url
        await api.call("DELETE", "/api/v1/nodes/gpu-a")
        assert embedded_cluster.names(one.server, "nodes") == ["gpu-b"]
        assert embedded_cluster.names(other.server, "nodes") == ["gpu-a", "gpu-b"]


async def test_a_bug_in_a_part_of_it_ends_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gpushare.devcluster.kubelet.kubelet.Kubelet._observe", broken)
    with pytest.raises(ExceptionGroup) as failure:
        async with embedded_cluster.cluster(tmp_path) as (dev, _):
            await wait.until(dev.server, lambda: None)  # until it is cancelled: this never comes
    assert failure.group_contains(ZeroDivisionError)


async def test_without_its_folder_it_does_not_start_and_leaves_nothing_open(tmp_path: Path) -> None:
    dev = DevCluster(nodes=[], folder=tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        async with dev:
            pass
    with pytest.raises(OSError, match="Cannot connect"):
        async with api_client.connect(dev.url):
            pass
