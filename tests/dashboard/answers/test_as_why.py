"""The page about a pod is `gpushare why`, as data and as text: on every cluster that the tests of `why` know."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from gpushare.core.facts import policies
from gpushare.dashboard.answers import why
from gpushare.view.snapshot import Snapshot
from gpushare.view.why import pod_details
from gpushare.view.why.pod_details import Event
from tests.ctl import worlds
from tests.ctl.why.cluster import HERE, NOW, Cluster, ask, world
from tests.dashboard.answers.clusters import read, sent

Case = dict[str, Any]


def cases() -> Iterator[tuple[str, Cluster]]:
    for case in (*_load("verdicts.yaml"), *_load("by_count.yaml")):
        yield case["name"], Cluster(case["only"], case["world"]["pods"]) if "only" in case else world(case.get("world"))
    for code, example in next(_load("refusals.yaml", flat=False)).items():
        yield code, Cluster(example.get("nodes", {}), example["pods"])


def _load(file: str, *, flat: bool = True) -> Iterator[Any]:
    for document in yaml.safe_load_all((HERE / file).read_text()):
        yield from document if flat and isinstance(document, list) else [document]


CASES = dict(cases())


def events_of(cluster: Cluster, pod: pod_details.Pod) -> list[Event]:
    return pod_details.events(cluster, pod)


def page(cluster: Cluster, snapshot: Snapshot, namespace: str, name: str, policy: str = "") -> Any:
    """Made of the live snapshot, as the server does it."""
    pod = why.find(snapshot, namespace, name)
    assert pod is not None
    explained = why.explain(snapshot, lambda: read(cluster), pod, events_of(cluster, pod), policy)
    return sent(why.answer(explained, snapshot.now, None))


def some(pods: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """One of many that are alike: their names differ by a number."""
    return list({(namespace, name.rstrip("0123456789")): (namespace, name) for namespace, name in pods}.values())


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_every_pod(name: str) -> None:
    cluster = CASES[name]
    snapshot = read(cluster)
    for namespace, pod in some([*cluster.pods]):
        shown = page(cluster, snapshot, namespace, pod)
        assert shown["explanation"] == ask(cluster, pod, namespace=namespace, output="json").json
        assert shown["text"] == ask(cluster, pod, namespace=namespace).out
        for sentence in shown["ways"]:  # each is there, up to what the text says once for several of them
            assert sentence.removeprefix("It would fit if ").removesuffix(".") in shown["text"]
        if "It would fit if" in shown["text"]:
            assert any("It would fit if" in one for one in shown["ways"])


@pytest.mark.parametrize("policy", [name for name in policies.POLICIES if name != "random"])
def test_the_same_by_every_policy_and_the_live_ledger_learns_nothing(policy: str) -> None:
    cluster = world({"pods": [{"name": "llm", "containers": {"main": 3000}}]})
    sampled = {"sampledAt": "2026-11-15T12:29:56Z"}
    gpus = [{"index": i, "uuid": f"GPU-gpu-c-{i}", "usedMiB": 100 * i, "utilization": 7} for i in (0, 1)]
    cluster.gpunodes["gpu-c"] = {"metadata": {"name": "gpu-c"}, "status": {**sampled, "gpus": gpus}}
    snapshot = read(cluster)
    shown = page(cluster, snapshot, "default", "llm", policy)
    assert shown["explanation"] == ask(cluster, "llm", output="json", policy=policy).json
    assert shown["text"] == ask(cluster, "llm", policy=policy).out
    assert all(state.measured is None for state in snapshot.ledger.nodes())
    assert page(cluster, snapshot, "default", "llm") == page(cluster, read(cluster), "default", "llm")


def test_what_a_running_pod_uses_is_told() -> None:
    cluster = world()
    uid = cluster.pods["default", "web-1"]["metadata"]["uid"]
    using = {"uid": uid, "pod": "web-1", "container": "main", "grantedMiB": 3500, "usedMiB": 4700}
    status = {"sampledAt": "2026-11-15T12:29:56Z", "gpus": [{"index": 1, "uuid": "GPU-gpu-b-1", "containers": [using]}]}
    cluster.gpunodes["gpu-b"] = {"metadata": {"name": "gpu-b"}, "status": status}
    shown = page(cluster, read(cluster), "default", "web-1")
    assert shown["explanation"]["uses"][0]["over_mib"] == 1200
    assert shown["text"] == ask(cluster, "web-1").out


def test_kube_schedulers_last_words_come_from_the_events() -> None:
    pods = [{"name": "llm", "containers": {"main": 3000}}]
    said = {"pod": "llm", "reason": "FailedScheduling", "message": "0/3 nodes.", "time": "2026-11-15T12:30:00Z"}
    cluster = world({"pods": pods, "events": [said]})
    shown = page(cluster, read(cluster), "default", "llm")
    assert shown["explanation"]["scheduler"] == {"message": "0/3 nodes.", "time": "2026-11-15T12:30:00Z"}
    assert shown["text"] == ask(cluster, "llm").out


def test_no_pod_of_that_name_is_none() -> None:
    snapshot = read(world())
    assert why.find(snapshot, "default", "nobody") is None
    assert why.find(snapshot, "other", "web-1") is None


def test_ways_are_the_ways_of_people() -> None:
    cluster = world({"pods": [{"name": "llm", "containers": {"main": 7000}}]})
    assert page(cluster, read(cluster), "default", "llm")["ways"] == [
        "It would fit if it asked 6536 MiB or less (gpu-c GPU 1, now).",
        "It would fit if one of 15 pods on gpu-c GPU 1 ended: batch-x7k2p (1000 MiB) and 14 more.",
    ]


def test_an_explanation_is_encoded_as_the_command_prints_it() -> None:
    """Fields with their default are left out in both."""
    cluster = world({"pods": [{"name": "llm", "containers": {"main": 7000}}]})
    snapshot = read(cluster)
    pod = why.find(snapshot, "default", "llm")
    assert pod is not None
    explained = why.explain(snapshot, lambda: snapshot, pod, [])
    assert json.loads(msgspec.json.encode(explained)) == ask(cluster, "llm", output="json").json


def test_both_kinds_of_clusters_have_the_same_time() -> None:
    assert worlds.NOW.timestamp() == NOW
