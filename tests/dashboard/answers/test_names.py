"""Who may not list the pods of a namespace never gets a name out of it: not one byte of any answer has it."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare.core.explain import event_texts
from gpushare.core.facts import names
from gpushare.dashboard.allowed import Allowed
from gpushare.dashboard.answers import gpu, health, history, node, search, waiting, whatif, why
from gpushare.dashboard.answers.ours import Seen
from gpushare.view.snapshot import Snapshot
from tests.ctl import worlds
from tests.ctl.worlds import Cluster, Json, container, gpunode, pod
from tests.dashboard.answers.clusters import COLUMNS, number, read

MARK = "zq"  # in every name that must not be seen
MINE, OURS, THEIRS = "mine", "mine-too", f"{MARK}-team"
ALLOWED: Allowed = frozenset({MINE, OURS})
SLICE = "nvidia.com/mig-1g.10gb"


def roomy(node: Json) -> Json:
    """With enough of everything else: else kube-scheduler's own checks keep all pods off."""
    node["status"]["allocatable"] = {**node["status"]["allocatable"], "cpu": "64", "memory": "256Gi", "pods": "110"}
    return node


NODES = [
    worlds.node("a", 16276, 16276, unhealthy=[1]),
    worlds.node("b", 15, 15, unit="GiB"),
    worlds.node("c", 16276, 16276, direct=True),
    worlds.seller("e", 16276, replicas=4, sharing="time-slicing"),
    worlds.node("f", capacity={SLICE: "2"}),
    worlds.node("g", 15, 15, aliyun=True),
]
NODES = [roomy(one) for one in NODES]


def name(namespace: str, i: int) -> str:
    return f"{MARK}-pod-{i}" if namespace == THEIRS else f"pod-{i}"


def kept(on: str, gpu_: int) -> dict[str, str]:
    return {names.KEPT: json.dumps({"node": on, "gpus": [[f"GPU-{on}-{gpu_}"]]})}


@st.composite
def pods(draw: st.DrawFn) -> list[Json]:
    made = []
    for i in range(draw(st.integers(3, 14))):
        namespace = draw(st.sampled_from([MINE, OURS, THEIRS, THEIRS]))
        amount = draw(st.sampled_from([1, 3, 14, 2000, 9000, 16000, 50000]))
        place = draw(st.sampled_from(["", "", "a", "b", "c", "stray", "e", "f", "g", "sold"]))
        common: dict[str, Any] = {"namespace": namespace, "priority": draw(st.sampled_from([0, 0, 10])), "age": i}
        one = name(namespace, i)
        if place in ("e", "f", "sold"):
            resource = {"e": names.NVIDIA_GPU, "f": SLICE, "sold": names.NVIDIA_GPU}[place]
            made.append(
                pod(one, counted={resource: draw(st.integers(1, 5))}, on="" if place == "sold" else place, **common)
            )
        elif place == "stray":
            made.append(pod(one, amount, on=draw(st.sampled_from(["a", "b"])), **common))
        elif place == "":
            notes = kept("a", 0) if draw(st.booleans()) else {}
            made.append(pod(one, amount, notes=notes, **common))
        elif place == "c":
            notes = {"gpushare.io/visible-0": f"GPU-c-{draw(st.integers(0, 1))}"}
            made.append(pod(one, amount, on="c", direct=True, notes=notes, **common))
        else:
            made.append(pod(one, amount, on=place, at=draw(st.integers(0, 1)), **common))
        if namespace == THEIRS:
            made[-1]["spec"]["containers"][0]["name"] = f"{MARK}-box"
            made[-1]["spec"]["schedulerName"] = f"{MARK}-scheduler"
        made[-1]["status"]["startTime"] = "2026-11-15T12:18:05Z"
    return made


def doing(pods: Sequence[Json]) -> list[Json]:
    """Every pod of a node uses more than it was given, and the nodes say so by name."""
    said = {"type": "OverUse", "status": "True", "message": f"used by {THEIRS}/{MARK}-pod (main)"}
    found = []
    for one in NODES:
        there = [p for p in pods if p["spec"]["nodeName"] == one["metadata"]["name"]]
        using = [
            container(p["metadata"]["name"], 100, 7000, namespace=p["metadata"]["namespace"],
                      name=p["spec"]["containers"][0]["name"]) | {"overUse": True, "smPercent": 5}
            for p in there
        ]  # fmt: skip
        gpu_ = {"usedMiB": 9000, "containers": using, "overUsers": [p["metadata"]["uid"] for p in there]}
        found.append(gpunode(one["metadata"]["name"], gpu_, gpu_, conditions=[said]))
    return found


def seen(pods: Sequence[Json]) -> Seen:
    """Our own pods are in a namespace that is not the reader's, too."""
    args = ["extender", "--policy", "spread"]
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    own = {"metadata": {"name": f"{MARK}-extender", "namespace": f"{MARK}-system"}, "status": ready,
           "spec": {"containers": [{"name": f"{MARK}-main", "image": "gpushare:1.2", "args": args}]}}  # fmt: skip
    events = [
        {"involvedObject": {"kind": kind, "name": f"{one['metadata']['name']}" if kind == "Pod" else "a",
                            "namespace": one["metadata"]["namespace"] if kind == "Pod" else ""},
         "reason": code, "message": f"GPU 0: held by {THEIRS}/{MARK}-pod" if kind == "Node" else "about itself",
         "reportingComponent": "gpushare", "lastTimestamp": "2026-11-15T12:18:05Z"}
        for one in pods for kind in ("Node", "Pod") for code in event_texts.AUDIT_CODES
    ]  # fmt: skip
    return msgspec.convert({"pods": [own], "events": events, "policies": []}, Seen)


def answers(cluster: Cluster, snapshot: Snapshot, seen: Seen, allowed: Allowed) -> Iterator[Any]:
    past = [
        {"namespace": THEIRS, "pod": f"{MARK}-gone", "uid": f"{MARK}-uid", "number": 3, "granted": [1], "used": [1]}
    ]
    columns = {**COLUMNS, "shares": past}
    for one in snapshot.nodes:
        yield node.answer(snapshot, one.metadata.name, number, allowed)
        for i in (0, 1):
            yield gpu.answer(snapshot, one.metadata.name, i, "1h", columns, number, allowed)
    yield waiting.answer(snapshot, allowed)
    yield history.answer(snapshot, COLUMNS, {pod.uid: 5 for pod in snapshot.asking}, allowed)
    yield health.answer(snapshot, seen, {"watch": 1.0}, allowed)
    for question in ("pod", MARK, f"{THEIRS}/", "1", "a"):
        yield search.answer(snapshot, question, allowed)
    for meta in [one.metadata for one in snapshot.pods]:
        if allowed is None or meta.namespace in allowed:
            pod_ = why.find(snapshot, meta.namespace, meta.name)
            assert pod_ is not None
            yield why.answer(why.explain(snapshot, lambda: read(cluster), pod_, []), snapshot.now, allowed)
    for asks in ("aliyun.com/gpu-mem: 9000", "aliyun.com/gpu-count: 1", "nvidia.com/gpu: 4", f"{SLICE}: 2"):
        limits = f"containers: [{{name: main, resources: {{limits: {{{asks}}}}}}}]"
        text = f"{{kind: Deployment, metadata: {{name: d}}, spec: {{replicas: 3, template: {{spec: {{{limits}}}}}}}}}"
        yield whatif.answer(whatif.trying(whatif.Question(text), read(cluster), None), allowed)


@settings(max_examples=60, deadline=None)
@given(pods())
def test_no_foreign_name_is_in_any_answer(made: list[Json]) -> None:
    cluster = Cluster((NODES, made), doing(made))
    snapshot, read_besides = read(cluster), seen(made)
    for answer in answers(cluster, snapshot, read_besides, ALLOWED):
        encoded = msgspec.json.encode(answer).decode()
        assert MARK not in encoded, encoded


@settings(max_examples=10, deadline=None)
@given(pods())
def test_who_may_see_everything_does(made: list[Json]) -> None:
    """So the test above can fail: the names are there to be found."""
    cluster = Cluster((NODES, made), doing(made))
    shown = b"".join(map(msgspec.json.encode, answers(cluster, read(cluster), seen(made), None))).decode()
    for one in made:
        assert f'"{one["metadata"]["name"]}"' in shown
    assert f"{MARK}-extender" in shown
    assert f"{MARK}-gone" in shown
    assert f"held by {THEIRS}/{MARK}-pod" in shown


def test_one_that_is_allowed_several_namespaces_reads_the_names_of_all_of_them() -> None:
    made = [
        pod("full", 16000, on="a", at=0, namespace=OURS),
        pod("waits", 9000, namespace=MINE),
    ]
    cluster = Cluster(([roomy(worlds.node("a", 16276))], made))
    snapshot = read(cluster)
    found = why.find(snapshot, MINE, "waits")
    assert found is not None
    explained = why.explain(snapshot, lambda: snapshot, found, [])
    assert why.namespaces(explained) == {MINE, OURS}
    assert f"{OURS}/full" in why.answer(explained, snapshot.now, ALLOWED).text
    assert f"{OURS}/full" not in why.answer(explained, snapshot.now, frozenset({MINE})).text


@settings(max_examples=30, deadline=None)
@given(pods())
def test_the_namespaces_an_answer_is_about_are_all_that_decide_it(made: list[Json]) -> None:
    """A reader who may see these and no others gets what one gets who may see everything."""
    cluster = Cluster((NODES, made), doing(made))
    snapshot, read_besides = read(cluster), seen(made)
    peaks = {pod.uid: 5 for pod in snapshot.asking}

    def same(make: Callable[[Allowed], Any], about: frozenset[str]) -> None:
        assert msgspec.json.encode(make(about)) == msgspec.json.encode(make(None))

    for one in snapshot.nodes:
        at = one.metadata.name
        same(partial(node.answer, snapshot, at, number), node.namespaces(snapshot, at))
    same(partial(waiting.answer, snapshot), waiting.namespaces(snapshot))
    same(partial(history.answer, snapshot, COLUMNS, peaks), history.namespaces(snapshot, peaks))
    same(partial(search.answer, snapshot, "pod"), search.namespaces(snapshot, "pod"))
    for meta in [one.metadata for one in snapshot.pods]:
        found = why.find(snapshot, meta.namespace, meta.name)
        assert found is not None
        explained = why.explain(snapshot, lambda: read(cluster), found, [])
        same(partial(why.answer, explained, snapshot.now), why.namespaces(explained))
    limited, everything = (
        msgspec.to_builtins(health.answer(snapshot, read_besides, {}, allowed))
        for allowed in (health.namespaces(snapshot, read_besides), None)
    )
    about_nodes = [one for one in everything["audit"] if one["node"]]
    assert limited["audit"] != everything["audit"] or not about_nodes
    for key in ("extender", "schedulers", "unplaced", "over"):
        assert limited[key] == everything[key]
