"""The report for people: what each node's checks have found, ways out, and an exit code."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gpushare.core.annotations import validation
from gpushare.core.annotations.validation import Check
from gpushare.core.facts import names
from gpushare.ctl.screen import Screen
from gpushare.ctl.validate import command
from gpushare.ctl.validate.command import Options, Try
from gpushare.obs.errors import CLUSTER_NOT_ASKED, UserError
from gpushare.view.snapshot import NODES
from gpushare.view.source import NotFound

NOW = datetime(2026, 11, 17, 12, 30, 5, tzinfo=UTC).timestamp()
SINCE = "2026-11-17T12:27:00Z"
GOOD = {name: Check("passed", SINCE, f"{name} is fine") for name in ("driver", "toolkit", "plugin")}
GOOD |= {"mps": Check("skipped", SINCE, "none is sold"), "workload": Check("passed", SINCE, "sees GPU-0")}
BAD = {"driver": Check("failed", "2026-11-17T12:29:53Z", "the driver is not loaded", "on the node: nvidia-smi")}
BAD |= {name: Check("waiting", SINCE, "waits for driver") for name in ("toolkit", "plugin", "mps", "workload")}
Json = dict[str, Any]


def node(name: str, checks: dict[str, Check] | None = None, labels: dict[str, str] | None = None) -> Json:
    annotations = {names.VALIDATION: validation.write(checks)} if checks else {}
    return {"metadata": {"name": name, "annotations": annotations, "labels": labels}}


class Cluster:
    def __init__(self, *nodes: Json, policies: list[Json] | None = None) -> None:
        self.nodes, self.policies = nodes, policies

    def get(self, path: str) -> bytes:
        if path == NODES:
            return json.dumps({"items": self.nodes}).encode()
        assert path == "/apis/gpushare.io/v1alpha1/clusterpolicies"
        if self.policies is None:
            raise NotFound("not there", "404", "x", CLUSTER_NOT_ASKED)
        return json.dumps({"items": self.policies}).encode()


def shown(cluster: Cluster, *nodes: str, output: str = "", width: int | None = None,
          tried: Try | None = None) -> tuple[str, int]:  # fmt: skip
    out = io.StringIO()
    code = command.run(Options(nodes, output), cluster, Screen(out, io.StringIO(), width=width), NOW, tried)
    return out.getvalue(), code


def test_a_good_node_is_a_table_and_exit_code_0() -> None:
    text, code = shown(Cluster(node("gpu-a", GOOD), node("cpu-a")))
    assert code == 0
    assert text == (
        "gpu-a: all checks passed\n"
        "CHECK     STATE    SINCE  WHY\n"
        "driver    passed   3m     driver is fine\n"
        "toolkit   passed   3m     toolkit is fine\n"
        "plugin    passed   3m     plugin is fine\n"
        "mps       skipped  3m     none is sold\n"
        "workload  passed   3m     sees GPU-0\n"
    )


def test_a_failure_is_said_with_the_way_out_and_exit_code_1() -> None:
    text, code = shown(Cluster(node("gpu-a", GOOD), node("gpu-b", BAD)), "gpu-b")
    assert code == 1
    assert text == (
        "gpu-b: driver failed, 4 checks wait for others\n"
        "CHECK     STATE    SINCE  WHY\n"
        "driver    failed   12s    the driver is not loaded\n"
        "toolkit   waiting  3m     waits for driver\n"
        "plugin    waiting  3m     waits for driver\n"
        "mps       waiting  3m     waits for driver\n"
        "workload  waiting  3m     waits for driver\n"
        "Try\n"
        "  1. on the node: nvidia-smi\n"
    )


def test_of_many_nodes_only_those_that_are_not_good_have_a_table() -> None:
    cluster = Cluster(*(node(f"gpu-{i}", GOOD) for i in range(9)), node("gpu-x", BAD))
    text, code = shown(cluster)
    assert code == 1
    assert text.startswith("gpu-x: driver failed")
    assert text.endswith("\n9 nodes: all checks passed (-o wide lists them)\n")
    assert shown(cluster, output="wide")[0].count("CHECK") == 10


def test_a_gpu_node_that_says_nothing_is_not_good() -> None:
    text, code = shown(Cluster(node("gpu-a", labels={names.GPU_PRESENT: "true"})))
    assert code == 1
    assert "gpushare-validator has said nothing about this node" in text
    assert "kubectl get pods -A -o wide -l component=gpushare-validator" in text


def test_a_cluster_without_gpu_nodes_says_so() -> None:
    text, code = shown(Cluster(node("cpu-a")))
    assert (text.startswith("no GPU nodes"), code) == (True, 0)


def test_the_policy_is_shown_and_counts() -> None:
    condition = {"type": "Ready", "status": "False", "message": "node-part: gpu-b: driver missing\nmps: gpu-c: x"}
    policy = {"metadata": {"name": "cluster-policy"}, "status": {"state": "notReady", "conditions": [condition]}}
    text, code = shown(Cluster(node("gpu-a", GOOD), policies=[policy]))
    assert code == 1
    assert text.startswith(
        "ClusterPolicy cluster-policy: notReady\n  node-part: gpu-b: driver missing\n  mps: gpu-c: x\n\ngpu-a: all"
    )
    good = {"metadata": {"name": "cluster-policy"}, "status": {"state": "ready", "conditions": []}}
    assert shown(Cluster(node("gpu-a", GOOD), policies=[good]))[1] == 0


def test_programs_get_the_same() -> None:
    text, code = shown(Cluster(node("gpu-b", BAD), policies=[]), output="json")
    answer = json.loads(text)
    assert (code, answer["good"], answer["version"], answer["policies"]) == (1, False, 1, [])
    (found,) = answer["nodes"]
    assert (found["name"], found["good"]) == ("gpu-b", False)
    assert found["checks"][0] == {
        "check": "driver", "state": "failed", "since": "2026-11-17T12:29:53Z", "why": "the driver is not loaded",
        "way": "on the node: nvidia-smi",
    }  # fmt: skip
    assert "good: false" in shown(Cluster(node("gpu-b", BAD)), output="yaml")[0]


def test_checks_of_a_newer_validator_come_last_and_always_in_the_same_order() -> None:
    newer = dict.fromkeys(("zeta", "beta", "gamma", "alpha", "delta"), GOOD["driver"])
    (found,) = json.loads(shown(Cluster(node("gpu-a", {**newer, **GOOD})), output="json")[0])["nodes"]
    names_shown = [one["check"] for one in found["checks"]]
    assert names_shown == [*GOOD, "alpha", "beta", "delta", "gamma", "zeta"]


def test_a_long_reason_goes_on_below_itself_on_a_terminal() -> None:
    checks = {"driver": Check("failed", SINCE, "word " * 20, "x")}
    text, _ = shown(Cluster(node("gpu-a", checks)), width=60)
    assert all(len(line) <= 60 for line in text.splitlines())
    assert "\n                       word" in text


def test_what_others_wrote_does_not_move_the_cursor() -> None:
    text, _ = shown(Cluster(node("gpu-a", {"driver": Check("failed", SINCE, "a\x1b[2Jb", "")})))
    assert "\x1b" not in text


def test_an_unknown_node_is_bad_input() -> None:
    with pytest.raises(UserError, match='no node "gpu-z"') as caught:
        shown(Cluster(node("gpu-a", GOOD)), "gpu-z")
    assert caught.value.code == 2


def test_a_pod_that_was_tried_now_takes_the_place_of_the_check() -> None:
    def tried(nodes: Any) -> dict[str, Any]:
        return {one.metadata.name: ("failed", "sees none", "see runtime") for one in nodes}

    text, code = shown(Cluster(node("gpu-a", GOOD)), tried=tried)
    assert code == 1
    assert "workload  failed   0s     sees none\n" in text
