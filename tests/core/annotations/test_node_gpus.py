"""What a node says about its GPUs is read as it was written, and nonsense harms nobody."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.annotations import node_gpus
from gpushare.core.facts import names, objects
from gpushare.core.facts.model import Gpu, Pin, Sold
from gpushare.core.placement.fit import SELLS_GPUS
from gpushare.core.placement.room import Room
from tests.support.builders import facts, gpus, node


def test_a_node_without_annotation_has_equal_gpus() -> None:
    read = facts(15, 15, pin="aliyun")
    assert (read.pin, read.unit, [gpu.total for gpu in read.gpus]) == (Pin.ALIYUN, "GiB", [15, 15])
    assert facts(16276, pin="aliyun").unit == "MiB"
    assert facts(192, pin="aliyun").unit == "GiB"


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"unit": "MB"},
        {"pin": "aliyun"},
        {"pin": "?"},
        {"gpus": 3},
        {"largest": -1},
        {"largest": "50000"},
        {"slots": -1},
        {"slots": 49},
        {"nvidia": "half"},
        {"sell": "gpus"},
        {"sold": [{"resource": "nvidia.com/gpu"}]},
        {"pin": "nvidia"},
        {"pin": "nvidia", "sell": "gpus"},
        {"pin": "nvidia", "sell": "gpus", "sold": [{"resource": "nvidia.com/gpu", "replicas": 0}]},
        {"pin": "plugin", "slots": 10},
        {"pin": "plugin", "nvidia": "whole"},
        {"gpus": [{"i": 0}]},
        {"gpus": [{"i": 0, "uuid": "A", "total": 1}, {"i": 0, "uuid": "B", "total": 1}]},
        {"gpus": [{"i": 0, "uuid": "A", "total": -1}]},
        {"gpus": [{"i": 0, "uuid": "A", "total": 1 << 40}]},
    ],
)
def test_a_nonsensical_annotation_is_no_annotation(change: dict[str, Any]) -> None:
    bad = node(8000)
    assert bad.metadata.annotations is not None
    published = json.loads(bad.metadata.annotations[names.NODE_GPUS]) | change
    bad.metadata.annotations[names.NODE_GPUS] = json.dumps(published)
    read = node_gpus.read(bad, frozenset())
    assert read is not None
    assert read.pin is Pin.ALIYUN


@pytest.mark.parametrize(
    ("written", "listed"),
    [("0,2", {0, 2}), ("", set()), (" 1 ", {1}), ("x,1,,-3,1.5, 2", {1, 2}), ("0x1", set()), ("999999999999", set())],
)
def test_garbage_in_the_list_of_unhealthy_gpus_harms_nobody(written: str, listed: set[int]) -> None:
    assert node_gpus.unhealthy(objects.ConfigMap(data={names.UNHEALTHY_KEY: written})) == listed
    assert node_gpus.unhealthy(objects.ConfigMap()) == set()


@given(st.text())
def test_garbage_in_annotations_of_nodes_never_raises(text: str) -> None:
    bad = node(8000)
    bad.metadata.annotations = {names.NODE_GPUS: text}
    node_gpus.read(bad, frozenset())
    node_gpus.contradicts(bad)
    node_gpus.unhealthy(objects.ConfigMap(data={names.UNHEALTHY_KEY: text}))


def test_capacity_may_be_anything_from_the_healthy_gpus_to_all() -> None:
    assert not node_gpus.contradicts(node(8000, 8000))
    assert not node_gpus.contradicts(node(8000, 8000, unhealthy=[1], capacity=8000))
    assert not node_gpus.contradicts(node(8000, 8000, unhealthy=[1], capacity=11000))
    assert node_gpus.contradicts(node(8000, 8000, capacity=8000))
    assert node_gpus.contradicts(node(8000, 8000, capacity=15))
    assert not node_gpus.contradicts(node(8000, 8000, capacity=0))


def test_nodes_where_nothing_may_go_say_why() -> None:
    assert facts(8000).blocked is None
    assert [made.blocked.code for made in (facts(8000, nvidia=8), facts(8000, state="draining")) if made.blocked] == [
        "NvidiaToo", "PluginDown",
    ]  # fmt: skip
    down = node(8000)
    down.status.allocatable = {names.GPU_MEM: "0"}
    read = node_gpus.read(down, frozenset())
    assert read is not None
    assert read.blocked is not None
    assert read.blocked.code == "PluginDown"


def test_a_slim_node_says_the_same() -> None:
    for made in (node(8000, 9000, unhealthy=[1]), node(15, 15, pin="aliyun"), node(8000, nvidia=1)):
        assert node_gpus.read(node_gpus.slim(made), frozenset()) == node_gpus.read(made, frozenset())


def test_what_is_written_is_read_back() -> None:
    listed = (Gpu(0, "GPU-0", 8000, model="T4"), Gpu(3, "GPU-3", 9000, healthy=False, why="XID 79"))
    metadata = objects.Metadata(
        "n", annotations={names.NODE_GPUS: node_gpus.write("MiB", Pin.PLUGIN, listed, limit=50)}
    )
    read = node_gpus.read(objects.Node(metadata, objects.NodeStatus({names.GPU_MEM: 8000})), frozenset())
    assert read is not None
    assert (read.unit, read.pin, read.gpus, read.limit, read.blocked) == ("MiB", Pin.PLUGIN, listed, 50, None)


def test_what_a_node_sells_beside_memory_is_read_back() -> None:
    read = facts(8000, slots=10, nvidia_whole=True)
    assert (read.slots, read.nvidia_whole, read.blocked) == (10, True, None)


def test_a_node_that_sells_replicas_is_known_but_takes_no_shares() -> None:
    shared = Sold("nvidia.com/gpu.shared", 4, "time-slicing")
    written = node_gpus.write("MiB", Pin.NVIDIA, gpus(8000), sold=[shared])
    made = objects.Node(objects.Metadata("n", annotations={names.NODE_GPUS: written}))
    read = node_gpus.read(made, frozenset())
    assert read is not None
    assert (read.pin, read.sold, read.blocked) == (Pin.NVIDIA, (shared,), SELLS_GPUS)


def test_a_node_without_a_limit_is_written_as_before_there_were_limits() -> None:
    assert node_gpus.write("MiB", Pin.DIRECT, gpus(8)) == (
        '{"v":1,"unit":"MiB","pin":"direct","state":"ready",'
        '"gpus":[{"i":0,"uuid":"GPU-0","model":"","total":8,"ok":true,"why":""}]}'
    )
    assert '"state":"draining","largest":50,' in node_gpus.write("MiB", Pin.PLUGIN, (), state="draining", limit=50)


def test_an_annotation_without_a_limit_has_none() -> None:
    assert (facts(8).limit, facts(8, limit=5).limit) == (0, 5)


def test_nodes_with_different_limits_are_not_alike() -> None:
    rooms = [Room.of(facts(8, pin="plugin", limit=limit), [0]) for limit in (0, 5, 6)]
    assert len({room.picture for room in rooms}) == 3
    assert [room.healed().picture for room in rooms] == [room.picture for room in rooms]
