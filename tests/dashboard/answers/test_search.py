"""Nodes, GPUs and pods are found by a part of their name."""

from gpushare.dashboard.answers import search
from tests.ctl.worlds import Cluster, node, pod
from tests.dashboard.answers.clusters import read, sent

NODES = [node("gpu-a", 16276, 16276), node("gpu-b", 16276), node("old-gpu", 15, aliyun=True)]
PODS = [
    pod("serve-a", 4000, on="gpu-a", at=[[1]], namespace="ml"),
    pod("serve-b", 4000, 4000, on="gpu-a", at=[[0], [1]], namespace="ml"),
    pod("a-server", 4000, namespace="ml"),
    pod("web", on="gpu-b", namespace="front"),
    pod("serve-a", 4000, on="gpu-b", namespace="secret"),
]
SNAPSHOT = read(Cluster((NODES, PODS)))


def names(question: str, *allowed: str) -> list[str]:
    found = search.answer(SNAPSHOT, question, frozenset(allowed) if allowed else None)
    return [f"{one.namespace}/{one.name}" for one in found.pods]


def test_what_begins_with_it_comes_first() -> None:
    assert names("serve") == ["ml/serve-a", "ml/serve-b", "secret/serve-a", "ml/a-server"]


def test_case_and_space_around_it_do_not_matter() -> None:
    assert names("  SERVE-b ") == ["ml/serve-b"]
    assert search.answer(SNAPSHOT, "GPU-A", None).nodes == ["gpu-a"]


def test_a_namespace_and_a_name() -> None:
    assert names("ml/serve-a") == ["ml/serve-a"]
    assert search.answer(SNAPSHOT, "ml/gpu", None) == search.SearchPage([], [], [])


def test_pods_of_others_are_not_found() -> None:
    assert names("serve-a", "ml") == ["ml/serve-a"]
    assert names("secret/serve-a", "ml") == []


def test_the_namespaces_to_ask_about_are_those_that_match() -> None:
    assert search.namespaces(SNAPSHOT, "serve") == {"ml", "secret"}
    assert search.namespaces(SNAPSHOT, "web") == {"front"}
    assert search.namespaces(SNAPSHOT, "front/serve") == frozenset()
    assert search.namespaces(SNAPSHOT, "") == frozenset()


def test_where_a_pod_is() -> None:
    pods = sent(search.answer(SNAPSHOT, "e", None))["pods"]
    assert {(one["namespace"], one["name"]): (one["node"], one["gpu"]) for one in pods} == {
        ("ml", "serve-a"): ("gpu-a", 1),
        ("ml", "serve-b"): ("gpu-a", None),  # it has several
        ("ml", "a-server"): ("", None),
        ("front", "web"): ("gpu-b", None),
        ("secret", "serve-a"): ("gpu-b", None),  # nobody knows which
    }


def test_gpus_by_the_beginning_of_their_uuid() -> None:
    wanted = [
        {"node": "gpu-a", "index": 0, "uuid": "GPU-gpu-a-0"},
        {"node": "gpu-a", "index": 1, "uuid": "GPU-gpu-a-1"},
    ]
    assert sent(search.answer(SNAPSHOT, "gpu-gpu-a", None))["gpus"] == wanted
    assert sent(search.answer(SNAPSHOT, "GPU-gpu-a-1", None))["gpus"] == wanted[1:]
    assert search.answer(SNAPSHOT, "a-1", None).gpus == []


def test_an_empty_question_finds_nothing() -> None:
    for question in ("", "   ", "/", "ml/"):
        assert search.answer(SNAPSHOT, question, None) == search.SearchPage([], [], [])


def test_at_most_twenty_of_each_and_those_that_begin_with_it_among_them() -> None:
    nodes = [node(f"n-{i:03}", 8000) for i in range(60)]
    pods = [pod(f"a-x-{i:03}", 100) for i in range(60)] + [pod("x-last", 100, namespace="z")]
    found = search.answer(read(Cluster((nodes, pods))), "x-", None)
    assert [one.name for one in found.pods][:2] == ["x-last", "a-x-000"]
    assert len(found.pods) == 20
    found = search.answer(read(Cluster((nodes, pods))), "n-", None)
    assert len(found.nodes) == len(found.gpus) == 20


def test_a_very_long_question_is_cut() -> None:
    assert search.answer(SNAPSHOT, "serve-a" * 100_000, None) == search.SearchPage([], [], [])
