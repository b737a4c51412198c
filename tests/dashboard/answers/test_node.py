"""The page of a node, and of a GPU: what `inspect -o json` does not have."""

from typing import Any

import pytest

from gpushare.dashboard.answers import gpu, node
from tests.ctl import worlds
from tests.ctl.worlds import Cluster, Json, container, gpunode, pod
from tests.dashboard.answers.clusters import COLUMNS, number, read, sent

MINE = frozenset({"mine"})


def page(cluster: Cluster, name: str = "a", allowed: frozenset[str] | None = None, **more: Any) -> Any:
    return sent(node.answer(read(cluster), name, number, allowed, **more))


def one(*pods: Json, using: list[Json] | None = None, conditions: list[Json] | None = None, **status: Any) -> Cluster:
    """One node with two GPUs, the second measured."""
    measured = {"usedMiB": 9000, "unattributedMiB": 300, "temperatureLimit": 90, "powerLimitWatts": 300}
    known = gpunode("a", {}, measured | {"containers": using or []}, conditions=conditions or [], **status)
    return Cluster(([worlds.node("a", 16276, 16276)], list(pods)), [known])


def test_there_is_no_page_of_a_node_or_gpu_that_is_not_there() -> None:
    snapshot = read(one())
    assert node.answer(snapshot, "b", number, None) is None
    assert gpu.answer(snapshot, "b", 0, "1h", COLUMNS, number, None) is None
    assert gpu.answer(snapshot, "a", 2, "1h", COLUMNS, number, None) is None
    assert (gpu.key(snapshot, "a", 1), gpu.key(snapshot, "a", 2)) == ("GPU-a-1", None)


def test_what_is_measured_and_what_is_not() -> None:
    first, second = page(one())["gpus"]
    assert (second["unattributed"], second["tempLimit"], second["powerLimit"]) == (300, 90, 300)
    unknown = ("used", "util", "temp", "tempLimit", "power", "powerLimit", "unattributed")
    assert [first[key] for key in unknown] == [None] * len(unknown), "unknown is never 0"


def test_containers_have_rows_of_their_own_where_they_add_up() -> None:
    both = [container("p", 3000, 2000) | {"smPercent": 7}, container("p", 1000, 1500, name="helper")]
    rows = page(one(pod("p", 3000, 1000, on="a", at=[[1], [1]]), using=both))["gpus"][1]["shares"]
    assert [(one["container"], one["granted"], one["used"], one["over"], one["sm"]) for one in rows] == [
        ("main", 3000, 2000, 0, 7),
        ("helper", 1000, 1500, 500, None),
    ]
    both[1]["grantedMiB"] = 900
    (row,) = page(one(pod("p", 3000, 1000, on="a", at=[[1], [1]]), using=both))["gpus"][1]["shares"]
    assert (row["container"], row["granted"], row["used"], row["over"], row["sm"]) == (None, 4000, 3500, 600, None)


def test_what_is_not_known_of_one_container_is_not_known_of_its_pod() -> None:
    both = [container("p", 3000, 2000), container("p", 900, None, name="helper")]
    (row,) = page(one(pod("p", 3000, 1000, on="a", at=[[1], [1]]), using=both))["gpus"][1]["shares"]
    assert row["used"] is None


def test_a_pod_that_is_not_measured_has_its_container_by_its_annotations() -> None:
    cluster = one(pod("p", 3000, on="a", at=[[1]]), pod("q", 1000, 500, on="a", at=[[1], [1]]))
    assert [row["container"] for row in page(cluster)["gpus"][1]["shares"]] == ["main", None]


def test_since_when_a_pod_is_there() -> None:
    made = pod("p", 3000, on="a", at=[[1]])
    made["status"]["startTime"] = "2026-11-15T12:18:05Z"
    assert page(one(made))["gpus"][1]["shares"][0]["since"] == "2026-11-15T12:18:05Z"
    assert page(one(pod("p", 3000, on="a", at=[[1]])))["gpus"][1]["shares"][0]["since"] is None


OVER = [{"type": "OverUse", "status": "True", "lastTransitionTime": "2026-11-15T12:20:05Z"}]


def test_for_how_long_a_container_uses_too_much_is_told_by_the_node_or_remembered() -> None:
    made, using = pod("p", 3000, on="a", at=[[1]]), [container("p", 3000, 4000) | {"overUse": True}]
    cluster = one(made, using=using, conditions=OVER)

    def over_for(**more: Any) -> Any:
        return page(cluster, **more)["gpus"][1]["shares"][0]["overFor"]

    assert over_for() == 600
    assert over_for(over_for=lambda node_, key, uid: 900.5) == 900
    assert over_for(over_for=lambda node_, key, uid: 60.0) == 600
    two = [*using, container("q", 10, 20) | {"overUse": True}]
    cluster = one(made, pod("q", 10, on="a", at=[[1]]), using=two, conditions=OVER)
    assert over_for() is None, "nobody knows which of them it was"
    cluster = one(made, using=[container("p", 3000, 2000)], conditions=OVER)
    assert over_for(over_for=lambda node_, key, uid: 60.0) is None, "it does not"


def test_what_would_still_fit_there() -> None:
    nodes = [worlds.node("a", 81920, 81920), worlds.node("b", 80, unit="GiB", unhealthy=[0])]
    cluster = Cluster((nodes, [pod("p", 50000, on="a", at=[[0]])]))
    shown = page(cluster)
    assert [(one["size"], one["count"]) for one in shown["fits"]] == [
        (81920, 1), (40960, 2), (16384, 6), (8192, 13), (4096, 27), (1024, 111),
    ]  # fmt: skip
    assert shown["whole"] == 1
    assert (page(cluster, "b")["fits"][0]["count"], page(cluster, "b")["whole"]) == (0, 0)


def test_a_node_that_sells_by_count_has_no_granted_memory() -> None:
    using = [container("infer-1", 0, 600), container("gone", 0, 1)]
    for one_of in using:
        del one_of["grantedMiB"]
    cluster = Cluster(worlds.sold(), [gpunode("gpu-e", {"usedMiB": 700, "containers": using})])
    shown = page(cluster, "gpu-e")
    (row,) = shown["gpus"]
    assert (shown["state"], shown["pin"], row["granted"], row["free"], row["used"]) == (
        "selling", "nvidia", None, None, 700,
    )  # fmt: skip
    assert [(one["pod"], one["granted"], one["used"]) for one in row["shares"]] == [("infer-1", None, 600)]
    assert (shown["fits"], shown["whole"]) == ([], 0)
    assert page(cluster, "gpu-f")["gpus"] == []


def test_a_node_without_gpus_says_so() -> None:
    shown = page(worlds.cluster("measured"), "cpu-1")
    assert (shown["gpus"], shown["state"], shown["pin"]) == ([], "", "")
    assert shown["notes"] == ["cpu-1 offers no GPU memory, and sells no GPUs by count."]


def test_pods_without_a_known_gpu_are_listed_with_the_reason() -> None:
    made = [pod("mine", 3, on="a", namespace="mine"), pod("other", 2, on="a", namespace="secret")]
    shown = page(Cluster(([worlds.node("a", 15, unit="GiB")], made)), allowed=MINE)
    assert [(one["pod"], one["units"]) for one in shown["pending"]] == [("mine", 3072), (None, 2048)]
    assert all("its scheduler did not ask gpushare" in one["why"] for one in shown["pending"])
    assert shown["gpus"][0]["granted"] == 5 * 1024, "they count on every GPU"


def test_pods_of_others_have_an_amount_and_a_number_and_no_name() -> None:
    made = [pod("b", 2000, on="a", at=[[1]], namespace="secret"), pod("c", 1000, on="a", at=[[1]], namespace="mine")]
    rows = page(one(*made), allowed=MINE)["gpus"][1]["shares"]
    assert [(one["namespace"], one["pod"], one["container"], one["granted"]) for one in rows] == [
        ("mine", "c", "main", 1000),
        (None, None, None, 2000),
    ]
    assert rows[1]["number"] == number("secret/b")


@pytest.mark.parametrize(
    ("status", "why", "age"),
    [
        ({}, "", 9.0),
        ({"age": 725}, "last sampled 12m ago", 725.0),
        ({"sampledAt": ""}, "they were never sampled", None),
        ({"age": 20, "conditions": [{"type": "Sampled", "status": "False", "message": "no answer"}]},
         "last sampled 20s ago (no answer)", 20.0),
    ],
)  # fmt: skip
def test_how_old_figures_are_and_why_there_are_none(status: Json, why: str, age: float | None) -> None:
    known = gpunode("a", {"usedMiB": 1}, {}, **status)
    shown = page(Cluster(([worlds.node("a", 16276, 16276)], []), [known]))
    assert (shown["why"], shown["age"]) == (why, age)


def test_a_node_that_publishes_nothing_says_so() -> None:
    shown = page(Cluster(([worlds.node("a", 16276)], [])))
    assert (shown["why"], shown["age"], shown["sampledAt"]) == (node.NOT_PUBLISHED, None, "")


def test_how_the_node_itself_is() -> None:
    made = worlds.node("a", 16276, labels={"topology.kubernetes.io/zone": "z1", node.DRIVER: "580.1"})
    made["status"] |= {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.4"}}
    shown = page(Cluster(([made], [])))
    assert shown["kubelet"] == {"ready": True, "version": "v1.36.4"}
    assert (shown["zone"], shown["driver"], shown["address"], shown["state"]) == ("z1", "580.1", "10.0.0.11", "ready")
    assert page(Cluster(([worlds.node("a", 1)], [])))["kubelet"] == {"ready": None, "version": ""}
    made["spec"] = {"unschedulable": True}
    shown = page(Cluster(([made], [])))
    assert (shown["state"], shown["notes"]) == ("cordoned", [node.CORDONED.format(node="a")])


def test_why_no_new_pod_comes_there() -> None:
    made = worlds.node("a", 15, 15, aliyun=True, allocatable={"aliyun.com/gpu-mem": "0"})
    shown = page(Cluster(([made], [])))
    assert shown["state"] == "draining"
    assert shown["notes"][0].startswith(
        "a is a node whose GPU plugin is down: no new pod comes there. Look at the plugin"
    )


def test_the_series_of_a_gpu_come_as_they_are_kept_but_for_the_names() -> None:
    share = {"namespace": "secret", "pod": "b", "uid": "u", "number": 4, "granted": [1, 2], "used": [None, 2]}
    columns = {**COLUMNS, "times": [1.0, 2.0], "used": [None, 5], "shares": [share], "from": 1.0, "note": "so"}
    snapshot = read(one())
    shown = sent(gpu.answer(snapshot, "a", 1, "6h", columns, number, MINE))
    assert (shown["node"], shown["range"], shown["from"], shown["note"]) == ("a", "6h", 1.0, "so")
    assert (shown["times"], shown["used"], shown["tempLimit"]) == ([1.0, 2.0], [None, 5], 90)
    assert shown["shares"] == [{"namespace": None, "pod": None, "number": 4, "granted": [1, 2], "used": [None, 2]}]
    assert gpu.namespaces(snapshot, "a", columns) == {"secret"}
