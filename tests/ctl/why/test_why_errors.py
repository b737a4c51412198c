"""`gpushare why` where there is no answer, or only a part of it: no such pod, no rights."""

import pytest

from gpushare.obs.errors import UserError
from gpushare.view.source import Forbidden
from tests.ctl.why.cluster import Cluster, ask, world

REFUSED = "0/3 nodes are available: 1 Insufficient aliyun.com/gpu-mem, 2 no single GPU has 7000 MiB free."
LLM = {"name": "llm", "containers": {"main": 7000}, "waits": REFUSED}
OUR_EVENT = (
    "No single GPU has 7000 MiB free. Closest: gpu-c GPU 1, 6536 of 40536 MiB free, 464 short. "
    "More: kubectl gpushare why llm -n default"
)
RIGHT = (
    "note: not allowed: list nodes in all namespaces\n"
    '  why: user "dev" lacks verb list\n'
    "  try: kubectl create clusterrolebinding\n"
)


def restricted(*pods: object, events: bool = True) -> Cluster:
    """A cluster of which the user may read their own namespace only."""
    given = {"pods": list(pods)}
    if events:
        told = {
            "pod": "llm",
            "reason": "NoGPUFits",
            "message": OUR_EVENT,
            "time": "2026-11-15T12:29:58Z",
            "by": "gpushare",
        }
        given["events"] = [told]
    cluster = world(given)
    cluster.hidden = ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/kube-system")
    return cluster


def test_who_may_read_only_their_namespace_gets_what_the_pod_itself_tells() -> None:
    answer = ask(restricted(LLM), "llm")
    assert answer.out == (
        "llm is Pending: no single GPU has 7000 MiB free.\n"
        "  asks  7000 MiB on one GPU (container main)\n"
        f"  kube-scheduler, 8 s ago: {REFUSED}\n"
        "  gpushare: No single GPU has 7000 MiB free. Closest: gpu-c GPU 1, 6536 of 40536 MiB free, 464 short.\n"
    )
    assert answer.err == RIGHT
    assert answer.code == 1


def test_a_refusal_that_is_not_ours_is_said_to_be_kube_schedulers() -> None:
    pod = {"name": "llm", "containers": {"main": 7000}, "waits": "0/3 nodes are available: 3 Insufficient cpu."}
    answer = ask(restricted(pod, events=False), "llm")
    assert answer.out.startswith("llm is Pending: kube-scheduler has no node for it.\n")
    said = ask(restricted(pod, events=False), "llm", output="json").json
    assert (said["verdict"], said["owner"], said["code"]) == ("refused", "kube-scheduler", "Unschedulable")


def test_where_nobody_has_said_anything_the_answer_is_that_it_could_not_be_asked() -> None:
    answer = ask(restricted({"name": "llm", "containers": {"main": 7000}}, events=False), "llm")
    assert answer.out.startswith("llm is Pending: no scheduler has looked at it yet.\n")
    assert answer.code == 3


def test_where_a_pod_runs_its_own_annotations_tell() -> None:
    answer = ask(restricted(events=False), "web-1")
    assert answer.out == "web-1 runs on gpu-b GPU 1: 3500 MiB (container main).\n"
    assert (answer.err, answer.code) == (RIGHT, 0)
    assert ask(restricted(events=False), "train").out == (
        "train runs on gpu-c GPU 0 and GPU 1: 20000 MiB on each (container main).\n"
    )


@pytest.mark.parametrize("notes", [{}, {"gpu": "x"}, {"annotations": {"scheduler.framework.gpushare.allocation": "{"}}])
def test_annotations_that_say_nothing_harm_nobody(notes: dict[str, object]) -> None:
    pod = {"name": "llm", "node": "gpu-a", "containers": {"main": 7000}, **notes}
    answer = ask(restricted(pod, events=False), "llm")
    assert answer.out.startswith("llm is bound to gpu-a without a GPU (7000 MiB): its ")


@pytest.mark.parametrize("name", ["llm", "web-1", "train"])
@pytest.mark.parametrize("output", ["", "wide", "json", "yaml"])
def test_no_name_of_anybody_elses_pod_appears(name: str, output: str) -> None:
    strangers = [{"name": f"secret-{i}", "namespace": "other", "node": "gpu-c", "gpu": 1, "containers": {"main": 1}}
                 for i in range(3)]  # fmt: skip
    answer = ask(restricted(LLM, *strangers), name, output=output)
    assert answer.out
    assert "secret" not in answer.out + answer.err


def test_what_the_pod_alone_decides_needs_no_rights() -> None:
    cluster = restricted(
        {"name": "probe", "containers": {"main": "4Gi"}},
        {"name": "plain", "containers": {"main": None}},
        {"name": "done", "node": "gpu-a", "phase": "Succeeded", "containers": {"main": 1}},
        events=False,
    )
    for name, code in (("probe", 1), ("plain", 0), ("done", 0)):
        answer = ask(cluster, name)
        assert (answer.err, answer.code) == ("", code)


def test_events_that_may_not_be_read_are_done_without() -> None:
    cluster = world({"pods": [LLM]})
    cluster.hidden = ("/api/v1/namespaces/default/events",)
    assert ask(cluster, "llm").code == 1


def test_who_may_not_read_the_pod_is_told_which_right_is_missing() -> None:
    cluster = world({"pods": [LLM]})
    cluster.hidden = ("/api/v1/namespaces/default/pods",)
    with pytest.raises(Forbidden) as raised:
        ask(cluster, "llm")
    assert raised.value.code == 3


def error(cluster: Cluster, pod: str, **options: str) -> UserError:
    with pytest.raises(UserError) as raised:
        ask(cluster, pod, width=None, stdin="", **options)
    assert raised.value.code == 2
    return raised.value


def test_a_pod_that_does_not_exist_is_looked_for_among_those_of_a_like_name() -> None:
    said = error(world({"pods": [LLM, {**LLM, "name": "llm-2"}]}), "lml", program="kubectl gpushare")
    assert said.what == 'no pod "lml" in namespace default'
    assert said.why == "there is llm, llm-2"
    assert said.way == "kubectl gpushare why llm -n default"


def test_a_pod_of_that_name_in_another_namespace_is_most_likely_meant() -> None:
    said = error(world({"pods": [{**LLM, "namespace": "ml"}]}), "llm")
    assert (said.why, said.way) == ("there is one in namespace ml", "gpushare why llm -n ml")


def test_without_a_like_name_kubectl_has_the_list() -> None:
    said = error(world(), "nothing-like-it-at-all")
    assert (said.why, said.way) == ("46 pods there, none with a similar name", "kubectl get pods -n default")
    assert error(Cluster({}, [LLM]), "nothing-like-it-at-all").why == "1 pod there, none with a similar name"


def test_names_of_other_namespaces_are_not_told_to_who_may_not_read_them() -> None:
    cluster = world({"pods": [{**LLM, "namespace": "ml"}, {**LLM, "name": "llm-2"}]})
    cluster.hidden = ("/api/v1/pods",)
    said = error(cluster, "llm")
    assert (said.why, said.way) == ("there is llm-2", "gpushare why llm-2 -n default")
    cluster.hidden = ("/api/v1/pods", "/api/v1/namespaces/default/pods?")
    assert "ml" not in error(cluster, "xyz").render().replace("xyz", "")


@pytest.mark.parametrize("given", ["", "/", "a/b/c", "pod/", "default/"])
def test_what_names_no_pod_is_bad_input(given: str) -> None:
    cluster = world()
    assert error(cluster, given).what == f'"{given}" is not the name of a pod'
    assert cluster.asked == []


def test_two_namespaces_are_one_too_many() -> None:
    said = error(world(), "ml/llm", namespace="prod")
    assert (said.what, said.way) == ("two namespaces: ml in ml/llm, and -n prod", "gpushare why llm -n ml")
    assert ask(world({"pods": [{**LLM, "namespace": "ml"}]}), "ml/llm", namespace="ml").code == 1


@pytest.mark.parametrize("name", ["a b", "ü", "..", "%2e", "x?y=z", "a#b"])
def test_a_strange_name_is_only_a_name(name: str) -> None:
    """It stays one step of the path: it can ask for nothing else."""
    cluster = world()
    error(cluster, name)
    assert cluster.asked[0].count("/") == 6
    assert not set(cluster.asked[0]) & set(" ?#")


def test_an_answer_that_is_no_pod_is_the_clusters_fault() -> None:
    class Broken(Cluster):
        def get(self, path: str) -> bytes:
            return b"<html>"

    with pytest.raises(UserError) as raised:
        ask(Broken({}, []), "llm")
    assert raised.value.code == 3
