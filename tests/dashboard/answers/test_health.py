"""How gpushare itself is, from what could be read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpushare.core.explain import event_texts
from gpushare.core.facts import names
from gpushare.dashboard.answers import health
from gpushare.dashboard.answers.ours import Seen
from tests.ctl import worlds
from tests.ctl.worlds import Cluster, Json, pod
from tests.dashboard.answers.clusters import read, sent

DEPLOY = Path(__file__).parents[3] / "deploy"
WATCH = {"watch": 0.4}


def own_pod(template: Json, name: str = "own", *, ready: bool = True, node: str = "a", phase: str = "Running") -> Json:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    meta = {**template["metadata"], "name": name, "namespace": "kube-system"}
    return {"metadata": meta, "spec": {**template["spec"], "nodeName": node},
            "status": {"phase": phase, "conditions": conditions}}  # fmt: skip


def template(file: str, kind: str) -> Json:
    documents = yaml.safe_load_all((DEPLOY / file).read_text())
    found: Json = next(one for one in documents if one["kind"] == kind)["spec"]["template"]
    return found


def seen(pods: list[Json] | None = None, events: list[Json] | None = None, policies: list[Json] | None = None) -> Seen:
    return msgspec.convert({"pods": pods, "events": events, "policies": policies}, Seen)


def page(read_besides: Seen, world: worlds.World | None = None, allowed: frozenset[str] | None = None) -> Any:
    cluster = Cluster(world or worlds.documented())
    return sent(health.answer(read(cluster), read_besides, WATCH, allowed))


@pytest.mark.parametrize("file", ["extender.yaml", "extender-tls.yaml", "gpu-scheduler.yaml"])
def test_the_extender_of_each_manifest_is_found(file: str) -> None:
    made = template(file, "Deployment")
    assert made["metadata"]["labels"]["app"] == "gpushare", "the label that it is read by"
    extender = page(seen([own_pod(made)]))["extender"]
    assert (extender["found"], extender["ready"], extender["count"]) == (True, True, 1)
    assert (extender["version"], extender["policy"], extender["unit"]) == ("0.1.0", "binpack", "MiB")
    assert extender["pods"] == [{"namespace": "kube-system", "pod": "own", "ready": True}]


@pytest.mark.parametrize("args", [["extender", "--policy", "spread"], ["extender", "--policy=spread", "--port", "1"]])
def test_its_policy_is_in_its_arguments(args: list[str]) -> None:
    made = {"metadata": {}, "spec": {"containers": [{"image": "r.example:5000/x/gpushare@sha256:1", "args": args}]}}
    extender = page(seen([own_pod(made, ready=False)]))["extender"]
    assert (extender["policy"], extender["version"], extender["ready"]) == ("spread", "", False)


def test_no_extender_and_one_that_could_not_be_looked_for() -> None:
    assert page(seen([]))["extender"]["found"] is False
    shown = page(seen())
    assert (shown["extender"], shown["versions"], shown["audit"], shown["clusterPolicy"]) == (None, None, None, None)
    assert len(shown["notes"]) == 3
    assert page(seen([], [], []))["notes"] == []


def test_who_may_not_see_its_namespace_sees_how_it_is() -> None:
    extender = page(seen([own_pod(template("extender.yaml", "Deployment"))]), allowed=frozenset({"ml"}))["extender"]
    assert (extender["found"], extender["namespace"], extender["pods"], extender["count"]) == (True, None, [], 1)


def test_versions_of_the_parts_on_nodes() -> None:
    made = template("node-ds.yaml", "DaemonSet")
    older = msgspec.json.decode(msgspec.json.encode(made))
    older["spec"]["containers"][0]["image"] = "gpushare:0.0.9"
    pods = [own_pod(made, f"n-{i}", node=f"n{i}") for i in range(3)] + [own_pod(older, "o", node="o")]
    pods.append(own_pod(older, "ended", node="p", phase="Failed"))
    assert page(seen(pods))["versions"] == [{"version": "0.1.0", "nodes": 3}, {"version": "0.0.9", "nodes": 1}]


def test_nodes_by_who_pins_and_pods_by_their_policy() -> None:
    nodes = [worlds.node("a", 8000), worlds.node("b", 8000, direct=True), worlds.node("c", 15, aliyun=True),
             worlds.seller("d", 8000), worlds.node("e")]  # fmt: skip
    pods = [pod("p", 1000, notes={names.POLICY: "spread"}), pod("q", 1000), pod("r", 1000, notes={names.POLICY: "odd"})]
    pods[1]["spec"]["schedulerName"] = "gpu-scheduler"
    shown = page(seen(), (nodes, pods))
    assert shown["nodes"] == {"plugin": 1, "direct": 1, "aliyun": 1, "nvidia": 1}
    assert shown["policies"] == [{"policy": "spread", "pods": 1}]
    assert shown["schedulers"] == [{"name": "default-scheduler", "pods": 2}, {"name": "gpu-scheduler", "pods": 1}]
    assert shown["watch"] == WATCH


def test_gpus_and_containers_to_look_at() -> None:
    shown = page(seen(), worlds.unhealthy())
    assert [(one["node"], one["gpu"], one["pods"]) for one in shown["unhealthy"]] == [("a", 0, 1), ("b", 0, 1)]
    measured = read(worlds.cluster("measured"))
    over = sent(health.answer(measured, seen(), WATCH, frozenset({"default"})))["over"]
    assert [(one["node"], one["gpu"], one["pod"], one["container"], one["over"]) for one in over] == [
        ("gpu-a", 1, None, None, 1000),
        ("gpu-a", 1, "vision", "helper", 100),
        ("gpu-b", 1, "alone", "main", 600),
    ]


def test_pods_whose_gpu_is_not_known() -> None:
    unplaced = page(seen(), worlds.strays(), frozenset({"ml"}))["unplaced"]
    assert [(one["node"], one["pod"]) for one in unplaced] == [
        ("a", None), ("a", "stray-2"), ("a", "stray-3"), ("b", None), ("c", None),
    ]  # fmt: skip
    assert all(one["why"] for one in unplaced)


def event(code: str, minute: int = 1, **more: Any) -> Json:
    """About node a."""
    made: Json = {"involvedObject": {"kind": "Node", "name": "a"}, "reason": code, "message": f"{code} of secret/p"}
    made |= {"lastTimestamp": f"2026-11-15T12:{minute:02}:00Z", "reportingComponent": "gpushare", "count": 1}
    return made | more


def test_what_audits_found_is_told_once_the_latest_first() -> None:
    events = [
        event(event_texts.OVERCOMMITTED, minute=1),
        event(event_texts.OVERCOMMITTED, minute=6),
        event(event_texts.NVIDIA_TOO, minute=4),
        event("GPUAssigned"),
        event(event_texts.TOO_SMALL, reportingComponent="somebody"),
    ]
    audit = page(seen(events=events))["audit"]
    assert [(one["reason"], one["count"], one["time"]) for one in audit] == [
        (event_texts.OVERCOMMITTED, 2, "2026-11-15T12:06:00Z"),
        (event_texts.NVIDIA_TOO, 1, "2026-11-15T12:04:00Z"),
    ]
    assert audit[0]["message"] == "GPUOvercommitted of secret/p"


def test_who_may_not_see_all_pods_reads_what_is_wrong_and_no_name() -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "secret"}
    mine = {"kind": "Pod", "name": "m", "namespace": "ml"}
    events = [event(code) for code in event_texts.AUDIT_CODES]
    events += [event(event_texts.WRONG_GPU, involvedObject=about)]
    events += [event(event_texts.WRONG_GPU, involvedObject=mine, message="sees GPU 1")]
    audit = page(seen(events=events), allowed=frozenset({"ml"}))["audit"]
    assert {one["message"] for one in audit if one["node"]} == set(event_texts.AUDIT_MEANINGS.values())
    assert [(one["pod"], one["message"]) for one in audit if one["pod"]] == [("m", "sees GPU 1")]


def test_the_policy_that_counts() -> None:
    policies: list[Json] = [
        {"metadata": {"name": "b", "creationTimestamp": "2026-02-01T00:00:00Z"}, "status": {"state": "ignored"}},
        {"metadata": {"name": "a", "creationTimestamp": "2026-03-01T00:00:00Z"},
         "status": {"state": "notReady", "conditions": [{"type": "Ready", "message": "node a: driver"}]}},
    ]  # fmt: skip
    shown = page(seen(policies=policies))["clusterPolicy"]
    assert shown == {"name": "a", "state": "notReady", "message": "node a: driver"}
    assert page(seen(policies=[]))["clusterPolicy"] is None
