"""What nodes sell by count is counted as kube-scheduler counts it."""

from typing import Any

import msgspec
import pytest

from gpushare.core.facts import intree
from gpushare.view import snapshot, sold, usage
from gpushare.view.snapshot import Snapshot
from tests.ctl import worlds
from tests.ctl.worlds import Json, node, pod, seller

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def cluster(nodes: list[Json], pods: list[Json]) -> Snapshot:
    made = msgspec.convert(nodes, type=list[snapshot.Node])
    return snapshot.build(made, msgspec.convert(pods, type=list[intree.Pod]), worlds.NOW.timestamp())


def counts(nodes: list[Json], *pods: Json) -> list[tuple[str, str, int, int, int]]:
    uses = sold.uses(cluster(nodes, list(pods)))
    return [(use.node, use.resource, use.total, use.used, use.free) for use in uses]


def test_pods_of_that_node_count_until_they_have_ended() -> None:
    lives = {"a": ("n", ""), "b": ("n", "Pending"), "c": ("n", "Failed"), "d": ("other", ""), "e": ("", "")}
    pods = [pod(name, counted={GPU: 1}, on=on, phase=phase) for name, (on, phase) in lives.items()]
    assert counts([seller("n", 8, replicas=4)], *pods) == [("n", GPU, 4, 2, 2)]


def test_of_init_containers_and_the_others_the_larger_counts() -> None:
    made = pod("p", counted={GPU: 1}, on="n")
    made["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {GPU: "3"}}}]
    assert counts([seller("n", 8, replicas=4)], made) == [("n", GPU, 4, 3, 1)]


def test_more_given_out_than_there_is_leaves_nothing() -> None:
    assert counts([seller("n", 8)], pod("a", counted={GPU: 1}, on="n"), pod("b", counted={GPU: 1}, on="n")) == [
        ("n", GPU, 1, 2, 0)
    ]


@pytest.mark.parametrize(
    ("capacity", "allocatable", "expected"),
    [
        ({GPU: "8"}, {GPU: "8"}, [(GPU, 8, 0)]),
        ({GPU: "8"}, {GPU: "5"}, [(GPU, 5, 3)]),
        ({GPU: "8"}, {GPU: "0"}, [(GPU, 0, 8)]),
        ({GPU: "0", SHARED: "16"}, {GPU: "0", SHARED: "16"}, [(SHARED, 16, 0)]),  # a name that is not sold any more
        ({"nvidia.com/mig-1g.10gb": "7"}, None, [("nvidia.com/mig-1g.10gb", 0, 7)]),
        ({GPU: "many", "example.com/gpu": "3"}, {}, []),
        (None, None, []),
    ],
)
def test_what_is_unhealthy_is_not_free_and_what_is_not_sold_is_not_listed(
    capacity: Any, allocatable: Any, expected: list[tuple[str, int, int]]
) -> None:
    made = node("n")
    made["status"] = {"capacity": capacity, "allocatable": allocatable}
    assert [(use.resource, use.free, use.unhealthy) for use in sold.uses(cluster([made], []))] == expected


def test_a_node_of_ours_whose_plugin_is_down_is_listed_with_nothing() -> None:
    made = seller("n", 8, replicas=4)
    made["status"] |= {"capacity": {}, "allocatable": {}}
    assert counts([made]) == [("n", GPU, 0, 0, 0)]


def test_a_node_that_shares_while_nvidias_plugin_runs_sells_too() -> None:
    assert counts([node("n", 8, capacity={"aliyun.com/gpu-mem": "8", GPU: "1"})]) == [("n", GPU, 1, 0, 1)]


def test_a_node_that_sells_by_count_offers_no_memory_unless_pods_from_before_hold_some() -> None:
    left = pod("left", 4000, on="n", at=[[0]])
    assert usage.nodes(cluster([seller("n", 16276)], [])) == []
    (use,) = usage.nodes(cluster([seller("n", 16276)], [left]))
    assert (use.name, use.used) == ("n", 4000)
