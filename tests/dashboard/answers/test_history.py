"""How much of what is free can be used, and who holds GPU memory that idles."""

from gpushare.core.explain import figures
from gpushare.core.steps import finish
from gpushare.dashboard.answers import history
from tests.ctl import worlds
from tests.ctl.worlds import Cluster, pod
from tests.dashboard.answers.clusters import COLUMNS, read, sent

NODES = [worlds.node("a", 40960, 40960), worlds.node("b", 80, unit="GiB")]
PODS = [
    pod("big", 30000, on="a", at=[[0]], namespace="ml"),
    pod("split", 20000, split=2, on="a", at=[[0, 1]], namespace="ml"),
    pod("coarse", 10, on="b", at=[[0]], namespace="web"),
    pod("stray", 1, on="b", namespace="web"),
    pod("waits", 50000, namespace="web"),
]
PEAKS = {"ml/big": 10000, "ml/split": 21000, "web/coarse": 240, "web/stray": 0, "web/waits": 0, "gone": 7}


def test_sizes_are_those_of_the_extenders_metrics() -> None:
    snapshot = read(Cluster((NODES, PODS)))
    shown = sent(history.answer(snapshot, COLUMNS, {}, None))
    found = finish(figures.counting(snapshot.ledger, [one for one in snapshot.asking if not one.node]))
    assert [one["size"] for one in shown["sizes"]] == [*found.sizes]
    assert [(one["fits"], one["unusable"]) for one in shown["sizes"]] == [
        (one.fitting, one.unusable) for one in found.sizes.values()
    ]
    assert {one["size"]: one["mib"] for one in shown["sizes"]} == {
        "1GiB": 1024, "4GiB": 4096, "8GiB": 8192, "16GiB": 16384, "40GiB": 40960, "p50": 10240, "p90": 50000,
        "whole": None,
    }  # fmt: skip
    free = sum(
        state.room.sum_free * (1 if state.name == "a" else 1024) for state in snapshot.ledger.nodes() if state.room
    )
    assert shown["free"] == free


def test_nothing_free_is_unknown_and_not_zero() -> None:
    full = Cluster(([worlds.node("a", 8192)], [pod("p", 8192, on="a", at=[[0]])]))
    shown = sent(history.answer(read(full), COLUMNS, {}, None))
    assert shown["free"] == 0
    assert {one["unusable"] for one in shown["sizes"]} == {None}


def test_what_is_held_and_idle_is_what_was_given_less_the_peak() -> None:
    shown = sent(history.answer(read(Cluster((NODES, PODS))), COLUMNS, PEAKS, None))
    assert shown["idle"] == [
        {"namespace": "ml", "pod": "big", "granted": 30000, "peak": 10000, "idle": 20000},
        {"namespace": "web", "pod": "coarse", "granted": 10240, "peak": 240, "idle": 10000},
    ]
    assert shown["idleNamespaces"] == [
        {"namespace": "ml", "granted": 30000, "idle": 20000},
        {"namespace": "web", "granted": 10240, "idle": 10000},
    ]


def test_a_pod_whose_use_is_unknown_is_not_called_idle() -> None:
    for peaks in ({}, {"ml/big": None}):
        shown = history.answer(read(Cluster((NODES, PODS))), COLUMNS, peaks, None)
        assert (shown.idle, shown.idle_namespaces) == ([], [])


def test_only_the_namespaces_of_the_reader_are_listed() -> None:
    snapshot = read(Cluster((NODES, PODS)))
    assert history.namespaces(snapshot, PEAKS) == {"ml", "web"}
    shown = history.answer(snapshot, COLUMNS, PEAKS, frozenset({"web"}))
    assert [one.pod for one in shown.idle] == ["coarse"]
    assert [one.namespace for one in shown.idle_namespaces] == ["web"]


def test_columns_come_as_they_are_kept() -> None:
    kept = {
        **COLUMNS,
        "times": [1.0],
        "used": [None],
        "waiting": {"NoSingleGpu": [3]},
        "from": 1.0,
        "source": "prometheus",
    }
    shown = sent(history.answer(read(Cluster((NODES, PODS))), kept, {}, None))
    assert (shown["times"], shown["used"], shown["waiting"]) == ([1.0], [None], {"NoSingleGpu": [3]})
    assert (shown["from"], shown["source"]) == (1.0, "prometheus")
