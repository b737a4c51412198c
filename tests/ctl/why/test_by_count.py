"""Pods that ask for GPUs by number: files, programs, rights, whatever a cluster sells. Words are in by_count.yaml."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.explain.report import Explanation
from tests.ctl.why.cluster import Answer, Cluster, ask

GPU, SHARED, SLICE = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
NODES = {
    "gpu-e": {"gpus": [16276], "pin": "nvidia", "sold": [{"resource": GPU, "replicas": 4, "sharing": "time-slicing"}]},
    "gpu-f": {"counted": {GPU: [2, 0]}},
    "gpu-h": {"gpus": [16276], "pin": "direct", "whole": True},
    "cpu-1": {},
}
TEMPLATE = "spec: {containers: [{name: main, resources: {limits: {RESOURCE: AMOUNT}}}]}"


def manifest(kind: str, amount: int, resource: str = GPU, replicas: int = 1) -> str:
    spec = TEMPLATE.replace("RESOURCE", resource).replace("AMOUNT", str(amount))
    body = spec if kind == "Pod" else f"spec: {{replicas: {replicas}, template: {{{spec}}}}}"
    return f"{{kind: {kind}, metadata: {{name: cuda}}, {body}}}"


def ask_file(*objects: str, pods: Any = (), **options: Any) -> Answer:
    return ask(Cluster(NODES, pods), filename="-", stdin="\n---\n".join(objects), **options)


@pytest.mark.parametrize(
    ("given", "begins", "code"),
    [
        (manifest("Pod", 1), "cuda (stdin) would fit now: gpu-e, 4 of 4 nvidia.com/gpu free.\n", 0),
        (manifest("Pod", 5), "cuda (stdin) can never run here: no node has as many as 5 nvidia.com/gpu.\n", 1),
        (manifest("Pod", 1, SLICE), "cuda (stdin) can never run here: no node sells nvidia.com/mig-1g.10gb.\n", 1),
        (manifest("Deployment", 2, replicas=3),
         "cuda (stdin): 3 of 3 replicas would fit now: 2 on gpu-e, 1 on gpu-f.\n", 0),
        (manifest("Deployment", 2, replicas=5),
         "cuda (stdin): 3 of 5 replicas would fit now; the 4th: no node has 2 nvidia.com/gpu free.\n", 1),
        (manifest("DaemonSet", 1),
         "cuda (stdin): 0 of 4 nodes would take it now; on cpu-1: it does not sell nvidia.com/gpu.\n", 1),
    ],
)  # fmt: skip
def test_a_file_is_placed_by_the_same_count(given: str, begins: str, code: int) -> None:
    answer = ask_file(given)
    assert answer.out.startswith(begins)
    assert (answer.err, answer.code) == ("", code)


def test_a_pod_of_a_file_takes_what_the_next_one_would_have_got() -> None:
    answer = ask_file(manifest("Pod", 4), manifest("Pod", 2), manifest("Pod", 1))
    assert answer.out.startswith(
        "cuda (stdin) would fit now: gpu-e, 4 of 4 nvidia.com/gpu free.\n"
        "  Whether a plugin gives out more than 1 of a shared resource is set on its node "
        "(failRequestsGreaterThanOne): that cannot be seen from here.\n\n"
    )
    assert "cuda (stdin) would fit now: gpu-f, 2 of 2 nvidia.com/gpu free.\n" in answer.out
    assert "cuda (stdin) would wait: no node has 1 nvidia.com/gpu free.\n" in answer.out


def test_a_dry_run_is_made_for_such_a_pod_too() -> None:
    cluster = Cluster(NODES, [])
    said = ask(cluster, filename="-", stdin=manifest("Pod", 1), output="json").json["items"][0]
    assert (said["verdict"], said["admission"]) == ("fits", "dry-run")
    assert len(cluster.tried) == 1


def test_programs_get_the_same_object_with_what_is_sold() -> None:
    pods = [{"name": "cuda", "counted": {GPU: 5}}, {"name": "other", "node": "gpu-e", "counted": {GPU: 3}}]
    answer = ask(Cluster(NODES, pods), "cuda", output="json")
    said = answer.json
    assert msgspec.json.decode(answer.out, type=Explanation).asks[0].amount == 5
    assert (said["verdict"], said["owner"], said["code"], said["request"]) == (
        "never", "kube-scheduler", "TooManyAsked", None
    )  # fmt: skip
    assert said["asks"] == [{"container": "main", "resource": GPU, "amount": 5}]
    assert [node["name"] for node in said["nodes"]] == ["gpu-f", "gpu-e", "gpu-h"]
    sold = {"resource": GPU, "total": 4, "free": 1, "short": 4, "sharing": "time-slicing"}
    assert said["nodes"][1]["sold"] == [sold]
    assert said["nodes"][2]["gpushare"]["code"] == "NeedsPolicy"
    assert said["ways"][0] == {"way": "shrink", "node": "gpu-f", "units": 2}


def test_a_pod_that_runs_says_for_programs_since_when() -> None:
    pods = [{"name": "cuda", "node": "gpu-e", "counted": {GPU: 1}, "since": "2026-11-15T12:00:00Z"}]
    said = ask(Cluster(NODES, pods), "cuda", output="json").json
    assert (said["verdict"], said["code"], said["pod"]["started"]) == ("runs", "Bound", "2026-11-15T12:00:00Z")


@pytest.mark.parametrize(
    ("words", "begins", "code"),
    [
        ({"waits": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."},
         "cuda is Pending: kube-scheduler has no node for it.\n  asks  1 nvidia.com/gpu (container main)\n", 1),
        ({}, "cuda is Pending: no scheduler has looked at it yet.\n", 3),
        ({"node": "gpu-e"}, "cuda runs on gpu-e: 1 nvidia.com/gpu (container main).\n", 0),
    ],
)  # fmt: skip
def test_who_may_read_only_their_namespace_gets_what_the_pod_itself_tells(words: Any, begins: str, code: int) -> None:
    cluster = Cluster(NODES, [{"name": "cuda", "counted": {GPU: 1}, **words}])
    cluster.hidden = ("/api/v1/nodes",)
    answer = ask(cluster, "cuda")
    assert answer.out.startswith(begins)
    assert answer.err.startswith("note: not allowed: list nodes")
    assert answer.code == code


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Nodes that sell up to three resources, pods on some of them, and x, which asks."""
    resource, few = st.sampled_from([GPU, SHARED, SLICE]), st.integers(0, 4)
    taint = [{"key": "dedicated", "value": "", "effect": "NoSchedule"}]
    nodes: dict[str, Any] = {}
    for i in range(draw(st.integers(0, 3))):
        nodes[f"n{i}"] = {"counted": draw(st.dictionaries(resource, st.tuples(few, st.integers(0, 1))))}
        nodes[f"n{i}"] |= {"taints": taint} if draw(st.booleans()) else {}
    asks = st.dictionaries(resource, st.integers(1, 4), min_size=1, max_size=2)
    pods = [
        {"name": f"p{i}", "node": f"n{draw(st.integers(0, 2))}", "counted": draw(asks)}
        for i in range(draw(st.integers(0, 4)))
    ]
    return Cluster(nodes, [*pods, {"name": "x", "counted": draw(asks)}])


def fitting(cluster: Cluster) -> list[str]:
    """The nodes with room for x by plain arithmetic, taints apart."""
    asks = _limits(cluster.pods["default", "x"])
    return [name for name in cluster.nodes if all(_free(cluster, name, key) >= n for key, n in asks.items())]


def _free(cluster: Cluster, name: str, resource: str) -> int:
    held = [_limits(pod).get(resource, 0) for pod in cluster.pods.values() if pod["spec"].get("nodeName") == name]
    return int(cluster.nodes[name]["status"]["allocatable"].get(resource, 0)) - sum(held)


def _limits(pod: Any) -> dict[str, int]:
    return {key: int(n) for key, n in pod["spec"]["containers"][0]["resources"]["limits"].items()}


@given(clusters())
def test_verdict_owner_and_exit_code_are_those_of_plain_arithmetic(cluster: Cluster) -> None:
    answer, room = ask(cluster, "x", output="json"), fitting(cluster)
    said, open_to_it = answer.json, [name for name in room if not cluster.nodes[name]["spec"]["taints"]]
    expected = "Fits" if open_to_it else "KeptOff" if room else said["code"]
    assert said["code"] == expected
    assert (said["code"] in ("Fits", "KeptOff")) == bool(room)
    assert said["owner"] == "kube-scheduler"
    assert answer.code == (0 if open_to_it else 1)
    assert {node["name"] for node in said["nodes"] if node["fits"]} == set(room)


def test_a_healthy_gpu_that_is_given_out_already_helps_nobody() -> None:
    nodes = {"gpu-a": {"counted": {GPU: (1, 1)}}}
    cluster = Cluster(
        nodes, [{"name": "old", "node": "gpu-a", "counted": {GPU: 2}}, {"name": "x", "counted": {GPU: 1}}]
    )
    assert [way["way"] for way in ask(cluster, "x", output="json").json["ways"]] == ["end"]


@given(clusters())
def test_what_is_said_to_help_helps(cluster: Cluster) -> None:
    for way in ask(cluster, "x", output="json").json["ways"]:
        helped = copy.deepcopy(cluster)
        limits = helped.pods["default", "x"]["spec"]["containers"][0]["resources"]["limits"]
        if way["way"] == "shrink":
            limits |= dict.fromkeys(limits, str(way["units"]))
        elif way["way"] == "end":
            del helped.pods["default", way["pods"][0].removeprefix("default/")]
        elif way["way"] == "free":
            for name in way["pods"]:
                del helped.pods["default", name.removeprefix("default/")]
        elif way["way"] == "heal":
            helped.nodes[way["node"]]["status"]["allocatable"] = helped.nodes[way["node"]]["status"]["capacity"]
        elif way["way"] == "ask":
            (amount,) = limits.values()
            helped.pods["default", "x"]["spec"]["containers"][0]["resources"]["limits"] = {way["resource"]: amount}
        elif way["way"] == "tolerate":
            helped.pods["default", "x"]["spec"]["tolerations"] = [{"operator": "Exists"}]
        said = ask(helped, "x", output="json").json
        assert said["code"] == "Fits", way
        assert way["node"] in [node["name"] for node in said["nodes"] if node["fits"] and node["scheduler"] is None], (
            way
        )


@given(clusters(), st.sampled_from(["", "wide"]), st.sampled_from([None, 20, 80]))
def test_there_is_an_answer_in_words(cluster: Cluster, output: str, width: int | None) -> None:
    answer = ask(cluster, "x", output=output, width=width)
    assert answer.out.startswith("x ")
    assert "None" not in answer.out
    assert ".." not in answer.out
