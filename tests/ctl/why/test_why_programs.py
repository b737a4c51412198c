"""`gpushare why -o json|yaml`: one object, whose keys are only ever added."""

from typing import Any

import msgspec
import yaml

from gpushare.core.explain.report import OWNERS, VERDICTS, Explanation
from gpushare.kube.errors import ApiError
from tests.ctl.why.cluster import REFUSED_AT, Cluster, ask, world

WAITS = "0/3 nodes are available: 1 Insufficient aliyun.com/gpu-mem, 2 no single GPU has 7000 MiB free."
LLM = {"name": "llm", "containers": {"main": 7000}, "waits": WAITS}
POD = (
    "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: N}}}]}}"
)
WAYS = {"shrink", "end", "evict", "split", "heal", "tolerate", "wait"}


def object_of(name: str = "llm", **extra: Any) -> Any:
    return ask(world({"pods": [LLM], **extra}), name, output="json").json


def test_the_object_is_the_documented_one() -> None:
    said = object_of()
    for key, value in {
        "version": 1,
        "verdict": "refused",
        "owner": "gpushare",
        "code": "NoSingleGpu",
        "message": "no single GPU has 7000 MiB free",
        "pod": {"namespace": "default", "name": "llm", "phase": "Pending", "node": None, "priority": 0},
        "request": {"unit": "MiB", "shares": [{"container": "main", "units": 7000, "gpus": 1, "whole": False}]},
        "scheduler": {"message": WAITS, "time": REFUSED_AT},
    }.items():
        assert said[key] == value
    first = said["nodes"][0]
    assert first["gpus"][0] == {
        "index": 1, "total": 40536, "free": 6536, "short": 464, "healthy": True, "pods": 15
    }  # fmt: skip
    refused = {"code": "NoSingleGpu", "message": "no single GPU has 7000 MiB free"}
    assert {key: first[key] for key in ("name", "fits", "gpushare", "scheduler")} == {
        "name": "gpu-c", "fits": False, "gpushare": refused, "scheduler": None
    }  # fmt: skip
    assert [node["name"] for node in said["nodes"]] == ["gpu-c", "gpu-b", "gpu-a"]
    shrink, end = said["ways"][:2]
    assert shrink == {"way": "shrink", "units": 6536, "node": "gpu-c", "gpu": 1}
    assert (end["way"], end["node"], end["gpu"], len(end["pods"])) == ("end", "gpu-c", 1, 15)
    assert end["holders"][0] == {"pod": "default/batch-x7k2p", "units": 1000, "priority": 0, "gpu": 1}


def test_keys_come_in_the_documented_order() -> None:
    keys = list(object_of())
    documented = ["version", "verdict", "owner", "code", "message", "pod", "request", "nodes", "ways", "scheduler"]
    assert [key for key in keys if key in documented] == documented


def test_every_object_can_be_read_back() -> None:
    for name in ("llm", "web-1", "train", "solo"):
        text = ask(world({"pods": [LLM]}), name, output="json").out
        said = msgspec.json.decode(text, type=Explanation)
        assert said.verdict in VERDICTS
        assert said.owner in OWNERS
        assert {way.way for way in said.ways} <= WAYS


def test_yaml_says_the_same() -> None:
    cluster = world({"pods": [LLM]})
    assert yaml.safe_load(ask(cluster, "llm", output="yaml").out) == ask(cluster, "llm", output="json").json


def test_kube_schedulers_part_has_its_own_place_and_owner() -> None:
    taint = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
    pods = [{"name": "nb-3", "containers": {"main": 3000}}]
    said = ask(world({"pods": pods, "nodes": {"gpu-c": {"taints": [taint]}}}), "nb-3", output="json").json
    assert (said["verdict"], said["owner"], said["code"]) == ("refused", "kube-scheduler", "KeptOff")
    assert said["nodes"][0]["fits"] is True
    assert said["nodes"][0]["gpushare"] is None
    assert said["nodes"][0]["scheduler"] == {
        "code": "Taint",
        "message": "taint dedicated=train:NoSchedule not tolerated",
    }
    assert said["ways"] == [{"way": "tolerate", "node": "gpu-c", "taint": "dedicated=train:NoSchedule"}]


def test_a_pod_that_runs_says_where_and_beside_whom() -> None:
    said = object_of("web-1")
    assert (said["verdict"], said["owner"], said["code"]) == ("runs", "gpushare", "Bound")
    assert said["pod"]["node"] == "gpu-b"
    assert said["has"] == [{"gpu": 1, "units": 3500, "free": 678, "total": 11178, "containers": ["main"]}]
    assert [holder["pod"] for holder in said["beside"]] == ["default/web-2", "default/web-3"]


def test_bound_but_not_started_is_kubelets_turn() -> None:
    pod = {"name": "nb-7", "node": "gpu-c", "gpu": 1, "phase": "Pending", "containers": {"main": 1},
           "waiting": {"main": "ErrImagePull"}}  # fmt: skip
    said = object_of("nb-7", pods=[pod])
    assert (said["verdict"], said["owner"]) == ("runs", "kubelet")
    assert said["detail"] == "container main has not started: ErrImagePull"


def test_the_phase_of_a_pod_that_ended_is_told() -> None:
    said = object_of("x", pods=[{"name": "x", "node": "gpu-a", "phase": "Failed", "containers": {"main": 1}}])
    assert (said["verdict"], said["code"], said["pod"]["phase"]) == ("runs", "Ended", "Failed")


def test_a_pod_that_asks_nothing_fits() -> None:
    said = object_of("x", pods=[{"name": "x", "node": "gpu-a", "priority": 7, "containers": {"main": None}}])
    assert (said["verdict"], said["code"], said["request"]) == ("fits", "NoRequest", None)
    assert said["pod"] == {"namespace": "default", "name": "x", "phase": "Running", "node": "gpu-a", "priority": 7}


def test_what_was_looked_at_for_a_pod_that_fits_is_told() -> None:
    pod = {"name": "nb-5", "containers": {"main": 3000}, "waits": "0/3 nodes are available: 3 Insufficient cpu."}
    said = object_of("nb-5", pods=[pod])
    assert (said["verdict"], said["ways"][0]["way"], said["ways"][0]["node"]) == ("fits", "wait", "gpu-c")
    assert [check["ok"] for check in said["checks"]] == [True, True, False]


def test_a_file_is_a_list_even_of_one() -> None:
    text = POD.replace("N", "3000")
    said = ask(world(), filename="-", stdin=text, output="json").json
    assert set(said) == {"version", "items"}
    assert [item["verdict"] for item in said["items"]] == ["fits"]


def test_replicas_are_told_with_the_first_that_does_not_fit() -> None:
    template = "{spec: {containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 3500}}}]}}"
    text = f"{{kind: Deployment, metadata: {{name: api}}, spec: {{replicas: 3, template: {template}}}}}"
    (item,) = ask(world(), filename="-", stdin=text, output="json").json["items"]
    assert (item["kind"], item["replicas"]) == ("Deployment", {"asked": 3, "fit": 1})
    assert (item["verdict"], item["code"]) == ("refused", "NoSingleGpu")
    assert item["nodes"][0]["gpus"][0]["free"] == 3036


def test_how_it_is_known_what_admission_makes_of_a_pod_is_told() -> None:
    both = {"m": {"gpus": [8000], "pin": "plugin"}, "n": {"gpus": [2000], "pin": "direct"}}
    for nodes, hidden, how in (
        (both, (), "dry-run"),
        (both, ("POST",), "read"),
        ({"n": both["n"]}, ("POST", "/apis"), "nodes"),
        (both, ("POST", "/apis"), "unknown"),
    ):
        cluster = Cluster(nodes, [])
        cluster.hidden, cluster.policy = hidden, {}
        (item,) = ask(cluster, filename="-", stdin=POD.replace("N", "3000"), output="json").json["items"]
        assert (item["admission"], item["verdict"], item["code"]) == (how, "never", "TooLarge")
        fits = {"verdict": "fits", "code": "Fits", "message": "fits"}
        assert item.get("otherwise") == (fits if how == "unknown" else None)
    assert "admission" not in object_of()


def test_what_would_not_be_created_is_the_api_servers_no() -> None:
    cluster = world()
    for status, verdict in ((403, "refused"), (422, "invalid"), (400, "invalid")):
        cluster.refuses = ApiError(status, "", 'pods "p" is forbidden: exceeded quota: q.')
        answer = ask(cluster, filename="-", stdin=POD.replace("N", "3000"), output="json")
        (item,) = answer.json["items"]
        assert (answer.code, item["verdict"], item["owner"]) == (1, verdict, "kube-apiserver")
        assert (item["code"], item["message"]) == ("NotAdmitted", "exceeded quota: q")
    for status, words, message in (
        (500, 'admission webhook "x" denied the request: no', 'admission webhook "x" denied the request: no'),
        (403, "", "403 Forbidden"),
    ):
        cluster.refuses = ApiError(status, "Forbidden", words)
        (item,) = ask(cluster, filename="-", stdin=POD.replace("N", "3000"), output="json").json["items"]
        assert (item["verdict"], item["message"]) == ("refused", message)
