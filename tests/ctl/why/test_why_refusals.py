"""`why` has words for every refusal there is: why/refusals.yaml, and one that only a running extender knows."""

from typing import Any

import pytest
import yaml

from gpushare.core.explain import verdict
from gpushare.view.why.text import page
from gpushare.view.why.text.page import Style
from tests.core import codes
from tests.ctl.why.cluster import HERE, NOW, Cluster, ask
from tests.support import builders

EXAMPLES: dict[str, Any] = yaml.safe_load((HERE / "refusals.yaml").read_text())
EXAMPLES["TooHard"] = {
    "nodes": {"a": {"gpus": [8000]}},
    "pods": [{"name": "x", "containers": {f"c{i}": 1 for i in range(201)}}],
    "begins": "x can never run here: placing 201 containers takes too long to work out.\n",
    "has": "Ask for GPU memory in fewer containers",
}
# What is not in objects of the API that `why` reads: which nodes rest, and whether reservations count.
ONLY_IN_MEMORY = {"JustRefused", "Reserved"}
WORDS = {"nodes", "pods", "begins", "row", "has"}


def test_no_refusal_is_without_an_example() -> None:
    assert set(EXAMPLES) | ONLY_IN_MEMORY == codes.every()


@pytest.mark.parametrize("code", EXAMPLES)
def test_every_refusal_has_its_words_and_its_way_out(code: str) -> None:
    example = EXAMPLES[code]
    assert set(example) <= WORDS
    cluster = Cluster(example.get("nodes", {}), example["pods"])
    said = ask(cluster, "x", output="json").json
    assert said["code"] == code
    answer = ask(cluster, "x")
    assert answer.out.startswith(example["begins"])
    assert example["has"] in answer.out
    assert f"  {example.get('row', '')}" in answer.out
    assert answer.code == 1


def test_a_node_that_rests_is_left_alone_for_a_while() -> None:
    ledger = builders.ledger(builders.facts(8))
    ledger.observe(builders.bound(builders.pod(4, name="r"), builders.facts(8), ((0,),)), 0.0)
    ledger.observe(builders.pod(4, name="r", on="n", phase="Failed", reason="UnexpectedAdmissionError"), 0.0)
    said = verdict.explain(ledger, builders.pod(4, name="x"))
    assert page.text(said, Style(NOW)) == (
        "x is Pending: there are only node(s) that refused this request just now.\n"
        "  asks  4 MiB on one GPU (container c0)\n"
        "\n"
        "  NODE  GPU MEMORY (gpushare)                        THE REST (kube-scheduler)\n"
        "  n     refused this request just now                ok\n"
        "\n"
        "  kubelet refused such a pod there a moment ago. The node is tried again automatically, within 5 minutes.\n"
    )


def test_a_reserved_node_is_called_so_and_how_that_ends() -> None:
    ledger = builders.ledger(builders.facts(8, reserved="yes"))
    ledger.respect_reservations(True)
    out = page.text(verdict.explain(ledger, builders.pod(4, name="x")), Style(NOW))
    assert out.startswith("x is Pending: there are only node(s) that are reserved.\n")
    assert "  n     is reserved  " in out
    assert "kubectl annotate node NODE reserved- ends that." in out


def test_a_pod_that_names_its_node_hears_only_of_that_one() -> None:
    nodes = {"a": {"gpus": [8000]}, "b": {"gpus": [2000]}}
    pod = {"name": "x", "scheduler": "gpu-scheduler", "annotations": {"nodeName": "b"}, "containers": {"main": 4000}}
    out = ask(Cluster(nodes, [pod]), "x").out
    assert out.startswith("x can never run here: no GPU is as large as 4000 MiB. The largest is 2000 MiB (b).\n")


def test_where_nodes_refuse_for_different_reasons_the_closest_speaks() -> None:
    nodes = {"a": {"gpus": [8000], "nvidia": 1}, "b": {"gpus": [2000]}}
    out = ask(Cluster(nodes, [{"name": "x", "containers": {"main": 4000}}]), "x").out
    assert out.startswith("x is Pending: the closest are node(s) whose GPUs NVIDIA's plugin also gives out.\n")
