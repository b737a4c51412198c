"""`gpushare why POD`: what people read, word for word. The cases are in why/verdicts.yaml and why/by_count.yaml."""

from typing import Any

import pytest

from tests.ctl.why import cluster
from tests.ctl.why.cluster import HERE, Cluster, ask, world
from tests.support import yaml_text

CASES = [
    *yaml_text.documents((HERE / "verdicts.yaml").read_text()),
    *yaml_text.document((HERE / "by_count.yaml").read_text()),
]
WORDS = {"name", "world", "only", "ask", "exit", "says", "begins", "has", "ends", "lines"}


def made(case: dict[str, Any]) -> Cluster:
    """`only`: other nodes than those of the examples, and none of their pods."""
    if "only" in case:
        return Cluster(case["only"], case.get("world", {}).get("pods", []))
    return world(case.get("world"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_verdict_in_its_words(case: dict[str, Any]) -> None:
    assert set(case) <= WORDS
    answer = ask(made(case), case["ask"])
    assert answer.out == case.get("says", answer.out)
    assert answer.out.startswith(case.get("begins", ""))
    assert answer.out.endswith(case.get("ends", ""))
    for line in case.get("has", []):
        assert line in answer.out
    assert answer.out.count("\n") == case.get("lines", answer.out.count("\n"))
    assert (answer.err, answer.code) == ("", case["exit"])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_nothing_is_wider_than_a_terminal_of_80_columns_but_words_that_cannot_be_broken(case: dict[str, Any]) -> None:
    answer = ask(made(case), case["ask"], width=80)
    for line in answer.out.splitlines():
        assert len(line) <= 80 or " " not in line.strip()
    piped = ask(made(case), case["ask"]).out
    assert answer.out.split() == piped.split()  # nothing is cut


def test_a_sentence_goes_on_below_its_beginning() -> None:
    pods = [{"name": "nb-5", "containers": {"main": 3000}, "waits": "0/3 nodes are available: 3 Insufficient cpu, "
             "and then some words that do not fit the line any more."}]  # fmt: skip
    assert ask(world({"pods": pods}), "nb-5", width=80).out == (
        "nb-5 is Pending, but it fits right now: gpu-c GPU 1, 6536 of 40536 MiB free, it\n"
        "  asks 3000. GPU memory is not what it waits for.\n"
        "  ok    no scheduling gate\n"
        '  ok    its scheduler "default-scheduler" has looked at it, 8 s ago\n'
        "  LOOK  kube-scheduler says: 0/3 nodes are available: 3 Insufficient cpu, and\n"
        "        then some words that do not fit the line any more.\n"
    )


def test_wide_shows_every_node_and_every_gpu() -> None:
    pods = [{"name": "llm", "containers": {"main": 7000}, "waits": "0/3 nodes are available."}]
    nodes = {f"gpu-{i}": {"gpus": [500]} for i in range(4)}
    lines = ask(world({"pods": pods, "nodes": nodes}), "llm", output="wide").out.splitlines()
    assert "  gpu-c  GPU 1: 6536 of 40536 MiB free, 464 short, 15 pods  ok" in lines
    assert "         GPU 0: 536 of 40536 MiB free, 6464 short, 21 pods" in lines
    assert "  gpu-3  GPU 0: 500 MiB in all, too small                   ok" in lines
    assert lines[-1] == "  kube-scheduler, 8 s ago: 0/3 nodes are available."


def test_wide_shows_why_a_gpu_is_not_given_out() -> None:
    nodes = {"gpu-c": {"gpus": [40536, {"total": 40536, "ok": False, "why": "XID 79"}]}}
    cluster = world({"pods": [{"name": "nb-4", "containers": {"main": 4000}}], "nodes": nodes})
    out = ask(cluster, "nb-4", output="wide").out
    assert "It would fit if that GPU came back (XID 79), or if 3322 MiB were freed on gpu-b GPU 1." in out
    assert "GPU 1: 6536 of 40536 MiB free, unhealthy (XID 79), 15 pods" in out


@pytest.mark.parametrize("given", ["llm", "pod/llm", "pods/llm", "po/llm", "default/llm"])
def test_a_pod_may_be_named_in_every_way_that_kubectl_prints(given: str) -> None:
    pods = [{"name": "llm", "containers": {"main": 7000}}]
    assert ask(world({"pods": pods}), given).out.startswith("llm is Pending")


def test_the_namespace_is_that_of_the_option_or_of_the_name_or_of_the_context() -> None:
    pods = [{"name": "llm", "namespace": "ml", "containers": {"main": 7000}}]
    ways: list[dict[str, Any]] = [{"pod": "ml/llm"}, {"pod": "llm", "namespace": "ml"}]
    for options in (*ways, {"pod": "llm", "default_namespace": "ml"}):
        asked = world({"pods": pods})
        assert ask(asked, **options).code == 1
        assert asked.asked[0] == "/api/v1/namespaces/ml/pods/llm"


def test_the_answer_is_the_same_whatever_order_the_api_server_lists_things_in() -> None:
    pods = [{"name": "llm", "containers": {"main": 7000}}]
    forward, backward = world({"pods": pods}), world({"pods": pods})
    backward.pods = dict(reversed(backward.pods.items()))
    backward.nodes = dict(reversed(backward.nodes.items()))
    for output in ("", "wide", "json", "yaml"):
        assert ask(forward, "llm", output=output).out == ask(backward, "llm", output=output).out


def test_a_pod_that_was_bound_while_it_was_asked_about_is_shown_where_it_is() -> None:
    class Racing(Cluster):
        def get(self, path: str) -> bytes:
            if path == "/api/v1/pods":
                new = cluster.pod({"name": "nb-5", "containers": {"main": 3000}, "node": "gpu-c", "gpu": 1})
                self.pods["default", "nb-5"] = new
            return super().get(path)

    found = world({"pods": [{"name": "nb-5", "containers": {"main": 3000}}]})
    racing = Racing({}, [])
    racing.nodes, racing.pods = found.nodes, found.pods
    assert ask(racing, "nb-5").out.startswith("nb-5 runs on gpu-c GPU 1: 3000 MiB (container main).")


def test_a_node_whose_plugin_is_gone_is_named() -> None:
    pods = [{"name": "llm", "containers": {"main": 7000}}]
    gone = Cluster({"gpu-a": {"capacity": 0, "count": 0}, "gpu-b": {"labels": {"gpushare": "true"}}, "cpu": {}}, pods)
    assert ask(gone, "llm").out == (
        "llm is Pending: there are only node(s) whose GPU plugin is down.\n"
        "  asks  7000 MiB on one GPU (container main)\n"
        "\n"
        "  NODE   GPU MEMORY (gpushare)                        THE REST (kube-scheduler)\n"
        "  gpu-a  GPU plugin is down                           ok\n"
        "  gpu-b  GPU plugin is down                           ok\n"
        "  and 1 node without a GPU\n"
        "\n"
        "  Look at the plugin: kubectl -n kube-system logs -l name=gpushare-device-plugin-ds\n"
    )


def test_names_of_other_namespaces_are_given_with_it() -> None:
    pods: list[dict[str, Any]] = [
        {"name": "other", "namespace": "ml", "node": "gpu-c", "gpu": 1, "containers": {"main": 600}},
        {"name": "llm", "containers": {"main": 6500}},
    ]
    out = ask(world({"pods": pods}), "llm").out
    assert "- one of 16 pods on gpu-c GPU 1 ended: ml/other (600 MiB) and 15 more" in out
    pods[0]["containers"] = {"main": 1600}
    assert "With it there: train 20000, ml/other 1600, batch-y-0 1000" in ask(world({"pods": pods}), "batch-x7k2p").out


def test_nothing_that_a_pod_says_moves_the_readers_cursor() -> None:
    rude = "\x1b[2J\x1b]0;x\x07\nerror: "
    pods = [
        {"name": "x", "policy": rude, "containers": {"main": 1}},
        {"name": "y", "scheduler": rude, "containers": {"main": 1}},
    ]
    for name in ("x", "y"):
        out = ask(world({"pods": pods}), name).out
        assert "?[2J" in out
        assert "\x1b" not in out
        assert not any(line.startswith("error") for line in out.splitlines())


def test_what_would_fit_only_once_something_ends_is_not_said_to_fit_now() -> None:
    nodes: dict[str, Any] = {"a": {"gpus": [8], "cordoned": True}, "b": {"gpus": [6]}}
    full = [{"name": f"on-{node}", "node": node, "gpu": 0, "containers": {"main": 5}} for node in nodes]
    out = ask(Cluster(nodes, [*full, {"name": "x", "containers": {"main": 7}}]), "x").out
    assert "It would fit if it asked 6 MiB or less (b GPU 0, once free)." in out


def test_several_unhealthy_gpus_that_are_needed_together_are_named_together() -> None:
    nodes = {"a": {"gpus": [{"total": 8, "ok": False}, {"total": 8, "ok": False}, 2]}}
    out = ask(Cluster(nodes, [{"name": "x", "split": 2, "containers": {"main": 12}}]), "x").out
    assert "It would fit if all unhealthy GPUs of a came back." in out


def test_a_stray_that_asks_whole_gpus_is_named_without_an_amount() -> None:
    pods = [
        {"name": "stray", "node": "a", "containers": {"main": {"count": 1}}},
        {"name": "x", "containers": {"main": 1}},
    ]
    assert "It would fit if stray on a ended." in ask(Cluster({"a": {"gpus": [8, 8]}}, pods), "x").out
