"""Every figure of the pages is the one that `gpushare inspect -o json` prints at the same moment, in MiB."""

import io
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gpushare.ctl.inspect import command
from gpushare.ctl.inspect.command import Options
from gpushare.ctl.inspect.watch import Clock
from gpushare.ctl.screen import Screen
from gpushare.dashboard.answers import gpu, node, waiting
from tests.ctl import worlds
from tests.ctl.worlds import Cluster, World, container, gpunode, pod
from tests.dashboard.answers.clusters import COLUMNS, NOW, number, read, sent


class Noon(Clock):
    def now(self) -> float:
        return NOW


def several_measured() -> Cluster:
    """Aliyun's node and one that counts in GiB, measured; one GPU of which a figure is unknown."""
    nodes, pods = worlds.both_units()
    using = [container("b", 30720, 31000), container("gone", 1, 1)]
    older = {"uuid": "", "usedMiB": 5000, "containers": [container("c", 7168, 7000)]}
    return Cluster(
        (nodes, pods),
        [
            gpunode("coarse", {"usedMiB": 31100, "containers": using}, {"utilization": 0}),
            gpunode("older", {"uuid": "", "usedMiB": 1}, older),
            gpunode("fine", {"usedMiB": 1}, {"containers": [container("a", 4000, None)]}, age=5000),
        ],
    )


def listed_unhealthy() -> Cluster:
    cluster = Cluster(worlds.documented())
    cluster.maps = [{"metadata": {"name": "unhealthy-gpu-gpu-b"}, "data": {"gpus": "0, 1"}}]
    return cluster


CLUSTERS: dict[str, Callable[[], Cluster]] = {
    **{name: partial(worlds.cluster, name) for name in worlds.WORLDS},
    "several-measured": several_measured,
    "listed-unhealthy": listed_unhealthy,
}


def inspected(cluster: Cluster) -> Any:
    out = io.StringIO()
    assert command.run(Options(output="json"), cluster, Screen(out, io.StringIO()), Noon()) == 0
    return json.loads(out.getvalue())


def by_pod(shares: list[Any]) -> list[dict[str, Any]]:
    """Rows of containers as one row of their pod, with the keys of `inspect`."""
    pods: dict[tuple[str, str], list[Any]] = {}
    for share in shares:
        pods.setdefault((share["namespace"], share["pod"]), []).append(share)
    rows = []
    for (namespace, name), those in pods.items():
        row: dict[str, Any] = {"name": name, "namespace": namespace, "usedGPU": sum(one["granted"] for one in those)}
        if all(one["used"] is not None for one in those):
            row["usedMiB"] = sum(one["used"] for one in those)
            row |= {"overMiB": over} if (over := sum(one["over"] for one in those)) else {}
        rows.append(row)
    return rows


def without_slots(pods: list[Any], factor: int) -> list[Any]:
    kept = [{key: value for key, value in one.items() if key != "usedSlots"} for one in pods]
    return [one | {"usedGPU": one["usedGPU"] * factor} for one in kept]


@pytest.mark.parametrize("name", CLUSTERS)
def test_each_gpu_of_each_node(name: str) -> None:
    cluster = CLUSTERS[name]()
    snapshot = read(cluster)
    for shown in inspected(cluster)["nodes"]:
        page = sent(node.answer(snapshot, shown["name"], number, None))
        factor = 1024 if shown["unit"] == "GiB" else 1
        assert page["unit"] == shown["unit"]
        assert len(page["gpus"]) == len(shown["devs"])
        assert sum(row["granted"] for row in page["gpus"]) == shown["usedGPU"] * factor
        for row, device in zip(page["gpus"], shown["devs"], strict=True):
            assert row["index"] == device["id"]
            assert row["total"] == device["totalGPU"] * factor
            assert row["granted"] == device["usedGPU"] * factor
            assert row["free"] == row["total"] - row["granted"]
            assert row["healthy"] is device["healthy"]
            figures = ("usedMiB", "utilization", "temperature", "powerWatts")
            assert [row[key] for key in ("used", "util", "temp", "power")] == [device.get(key) for key in figures]
            assert (row["slots"], row["usedSlots"]) == (device.get("slots", 0), device.get("usedSlots", 0))
            assert by_pod(row["shares"]) == without_slots(device["pods"], factor)


@pytest.mark.parametrize("name", CLUSTERS)
def test_what_is_sold_by_count(name: str) -> None:
    cluster = CLUSTERS[name]()
    snapshot = read(cluster)
    for shown in inspected(cluster)["sold"]:
        page = sent(node.answer(snapshot, shown["node"], number, None))
        (row,) = [one for one in page["sold"] if one["resource"] == shown["resource"]]
        assert {key: row[key] for key in ("sharing", "total", "used", "free", "unhealthy")} == {
            key: shown[key] for key in ("sharing", "total", "used", "free", "unhealthy")
        }
        assert [(one["namespace"], one["pod"], one["amount"]) for one in row["pods"]] == [
            (one["namespace"], one["name"], one["used"]) for one in shown["pods"]
        ]


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_pods_that_wait(name: str) -> None:
    cluster = CLUSTERS[name]()
    page, shown = sent(waiting.answer(read(cluster), None)), inspected(cluster)["waiting"]
    rows = [{key: value for key, value in one.items() if key != "owner"} for one in page["pods"]]
    assert sorted(rows, key=lambda one: (one["namespace"], one["name"])) == shown
    assert [one["created"] for one in rows] == sorted(one["created"] for one in rows), "the longest wait first"
    assert page["count"] == len(shown)
    assert page["codes"] == Counter(one["code"] for one in shown)
    assert page["hidden"] == page["more"] == 0


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_page_of_a_gpu_has_the_row_of_its_node(name: str) -> None:
    snapshot = read(CLUSTERS[name]())
    for one in snapshot.nodes:
        page = sent(node.answer(snapshot, one.metadata.name, number, None))
        for row in page["gpus"]:
            shown = gpu.answer(snapshot, page["name"], row["index"], "1h", COLUMNS, number, None)
            assert sent(shown)["gpu"] == row


def test_whose_answer_a_wait_is() -> None:
    snapshot = read(Cluster(_waits()))
    owners = {one["name"]: one["owner"] for one in sent(waiting.answer(snapshot, None))["pods"]}
    assert owners == {"large": "gpushare", "fits": "kube-scheduler", "counted": "kube-scheduler", "bytes": "gpushare"}


def _waits() -> World:
    pods = [pod("large", 50000), pod("fits", 1000), pod("counted", counted={"nvidia.com/gpu": 1}), pod("bytes", "4Gi")]
    return [worlds.node("a", 16276)], pods
