"""Piped, `inspect` prints Aliyun's bytes: those that are documented, and for any cluster those of a model."""

import io
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import given

from gpushare.ctl.inspect import command
from gpushare.ctl.inspect.command import Options
from gpushare.ctl.screen import Screen
from tests.ctl import worlds
from tests.ctl.inspect import aliyun
from tests.ctl.worlds import Cluster, World

DOCUMENTED = Path(__file__).parent / "documented"  # what Aliyun's documentation shows, rows in order
SUMMARY = (DOCUMENTED / "summary.txt").read_text("utf-8")
DETAILS = (DOCUMENTED / "details.txt").read_text("utf-8")

names = st.from_regex(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[aliyun.Node], str]:
    """Clusters of Aliyun's plugin, sorted; all nodes count in one unit."""
    unit, low, high = draw(st.sampled_from([("GiB", 1, 1024), ("MiB", 1025, 200_000)]))
    nodes = []
    for name in sorted(draw(st.sets(names, max_size=4))):
        gpus = draw(st.integers(1, 12))
        keys = sorted(draw(st.sets(st.tuples(names, names), max_size=6)))
        places = st.tuples(st.integers(1, high), st.integers(-1, gpus - 1))
        pods = [aliyun.Pod(pod, namespace, *draw(places)) for namespace, pod in keys]
        nodes.append(aliyun.Node(name, draw(st.ip_addresses(v=4).map(str)), gpus, draw(st.integers(low, high)), pods))
    return nodes, unit


def as_objects(nodes: list[aliyun.Node]) -> World:
    made = [worlds.node(n.name, *[n.each] * n.gpus, ip=n.address, aliyun=True) for n in nodes]
    pods = [
        worlds.pod(
            pod.name, str(pod.units), namespace=pod.namespace, on=node.name, at=pod.gpu if pod.gpu >= 0 else None
        )
        for node in nodes
        for pod in node.pods
    ]
    for number, pod in enumerate(pods):
        pod["metadata"]["uid"] = str(number)  # pods of equal names may be drawn for two nodes
    return made[::-1], pods[::-1]  # in any order: rows are sorted


def piped(world: World, *, details: bool = False) -> str:
    out = io.StringIO()
    assert command.run(Options(details=details), Cluster(world), Screen(out, io.StringIO())) == 0
    return out.getvalue()


def test_the_summary_is_the_documented_one() -> None:
    assert piped(worlds.aliyun()) == SUMMARY


def test_the_details_are_the_documented_ones_in_order() -> None:
    assert piped(worlds.aliyun(), details=True) == DETAILS


def test_the_model_of_aliyuns_plugin_prints_what_is_documented() -> None:
    nodes = [
        aliyun.Node(
            "gpu-node-1",
            "10.0.0.11",
            2,
            15,
            [
                aliyun.Pod("stray-77f5c-abcde", "default", 3, -1),
                aliyun.Pod("bert-embed-0", "prod", 8, 0),
                aliyun.Pod("llm-infer-6c9d8f7b5-q2x7k", "prod", 6, 0),
                aliyun.Pod("notebook-alice-0", "research", 4, 1),
            ],
        ),
        aliyun.Node(
            "gpu-node-2",
            "10.0.0.12",
            4,
            15,
            [aliyun.Pod("train-x", "prod", 15, 0), aliyun.Pod("train-y", "prod", 10, 2)],
        ),
    ]
    assert aliyun.summary(nodes, "GiB") == SUMMARY
    assert aliyun.details(nodes) == DETAILS


@given(clusters())
def test_any_summary_is_aliyuns(cluster: tuple[list[aliyun.Node], str]) -> None:
    nodes, unit = cluster
    assert piped(as_objects(nodes)) == aliyun.summary(nodes, unit if nodes else "")


@given(clusters())
def test_any_details_are_aliyuns(cluster: tuple[list[aliyun.Node], str]) -> None:
    nodes, _ = cluster
    assert piped(as_objects(nodes), details=True) == aliyun.details(nodes)


def test_percent_is_rounded_as_aliyun_rounds_it() -> None:
    """29 of 100 is 28.999… in its floating point, and 28 on its screen."""
    nodes = [aliyun.Node("a", "10.0.0.1", 1, 100, [aliyun.Pod("p", "default", 29, 0)])]
    assert aliyun.summary(nodes, "GiB").endswith("29/100 (28%)  \n")
    assert piped(as_objects(nodes)) == aliyun.summary(nodes, "GiB")
