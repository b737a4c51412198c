"""What if these pods came: where they go, what is said, and what is refused with one sentence."""

from typing import Any

import pytest

from gpushare.dashboard.answers import whatif
from gpushare.dashboard.answers.whatif import Question
from gpushare.obs.errors import UserError
from tests.ctl.why.cluster import Cluster, ask, world
from tests.dashboard.answers.clusters import read, sent

CONTAINER = "{name: main, resources: {limits: {aliyun.com/gpu-mem: AMOUNT}}}"
LIMIT = 256 << 10


def pod(amount: object = 3000, more: str = "") -> str:
    return f"{{kind: Pod, metadata: {{name: p{more}}}, spec: {{containers: [{CONTAINER}]}}}}".replace(
        "AMOUNT", str(amount)
    )


def deployment(replicas: object = 5, amount: object = 3000, kind: str = "Deployment") -> str:
    template = f"{{spec: {{containers: [{CONTAINER}]}}}}".replace("AMOUNT", str(amount))
    return f"{{kind: {kind}, metadata: {{name: d}}, spec: {{replicas: {replicas}, template: {template}}}}}"


def tried(text: str, cluster: Cluster | None = None, **more: Any) -> Any:
    cluster = cluster or world()
    return sent(whatif.answer(whatif.trying(Question(text, **more), read(cluster), cluster), None))


def refused(text: str, **more: Any) -> UserError:
    cluster = world()
    with pytest.raises(UserError) as caught:
        whatif.trying(Question(text, **more), read(cluster), cluster)
    assert len(str(caught.value)) < 600
    return caught.value


@pytest.mark.parametrize("text", [pod(), pod(7000), pod(99999), deployment(), deployment(2), deployment(3, 300)])
def test_it_is_what_why_says_of_a_file(text: str) -> None:
    """Apart from how admission is known: here nothing is sent to Kubernetes."""
    cluster = world()
    (item,) = tried(text, cluster)["items"]
    (said,) = ask(world(), filename="-", stdin=text, output="json").json["items"]
    assert {**item["explanation"], "admission": "dry-run"} == said
    assert item["text"] == ask(world(), filename="-", stdin=text).out.replace("(stdin)", "(pasted)")
    assert not cluster.tried
    assert not [path for path in cluster.asked if path.startswith("POST")]


def test_places_and_what_is_given_out_before_and_after() -> None:
    shown = tried(deployment(5, 3000))
    (item,) = shown["items"]
    assert (item["kind"], item["asked"], item["fit"]) == ("Deployment", 5, 2)
    assert item["places"] == [{"node": "gpu-c", "gpu": 1, "count": 2}]
    assert shown["gpus"] == [{"node": "gpu-c", "index": 1, "total": 40536, "before": 34000, "after": 40000}]
    assert item["text"].startswith(
        "d (pasted): 2 of 5 replicas would fit now; the 3rd: no single GPU has 3000 MiB free."
    )
    assert item["ways"][0] == "It would fit if it asked 678 MiB or less (gpu-b GPU 1, now)."


def test_amounts_are_mib_whatever_the_nodes_count_in() -> None:
    cluster = Cluster({"a": {"gpus": [16, 16], "unit": "GiB"}}, [])
    shown = tried(pod(4), cluster)
    assert shown["gpus"] == [{"node": "a", "index": 0, "total": 16384, "before": 0, "after": 4096}]


def test_replicas_of_the_question_are_instead_of_those_written() -> None:
    assert tried(deployment(1), replicas=2)["items"][0]["asked"] == 2
    (item,) = tried(pod(1000), replicas=4)["items"]
    assert (item["asked"], item["fit"], item["text"]) == (
        4, 4, "p (pasted): 4 of 4 replicas would fit now: 4 on gpu-c GPU 1.\n",
    )  # fmt: skip
    assert tried(pod(1000), replicas=1)["items"][0]["kind"] == "Pod"
    assert tried(deployment(3), replicas=0)["items"][0]["text"].startswith("d (pasted): it asks for 0 replicas")


def test_a_daemonset_has_one_pod_on_each_node_whatever_is_asked() -> None:
    shown = tried(deployment(1, 200, "DaemonSet"), replicas=7)
    assert (shown["items"][0]["asked"], shown["items"][0]["fit"]) == (3, 3)
    assert whatif.ONE_PER_NODE.format(name="d") in shown["notes"]


def test_the_policy_of_the_question_is_instead_of_the_one_written() -> None:
    cluster = Cluster({"a": {"gpus": [16000]}, "b": {"gpus": [16000]}},
                      [{"name": "x", "node": "a", "gpu": 0, "containers": {"main": 1000}}])  # fmt: skip
    written = pod(1000, ", annotations: {gpushare.io/policy: binpack}")
    assert tried(written, cluster)["gpus"][0]["node"] == "a"
    spread = tried(written, cluster, policy="spread")
    assert spread["gpus"][0]["node"] == "b"
    assert spread["items"][0]["explanation"]["policy"]["name"] == "spread"


@pytest.mark.parametrize("policy", ["metric", "keti", "fgd", "vrc", "spread", "random"])
def test_every_kind_of_policy_can_be_tried(policy: str) -> None:
    assert tried(deployment(2, 500), policy=policy)["items"][0]["fit"] == 2


def test_several_objects_see_each_other() -> None:
    shown = tried(f"{deployment(2)}\n---\n{pod()}")
    assert [item["fit"] for item in shown["items"]] == [2, 0]


def test_what_holds_no_pod_is_noted() -> None:
    shown = tried(f"{pod()}\n---\n{{kind: Service, metadata: {{name: s}}}}")
    assert "the text: Service s holds no pod." in shown["notes"]
    assert "affinity to other pods and volumes are not" in shown["scheduler"]


def test_a_pod_without_gpus_is_no_matter_of_ours() -> None:
    (item,) = tried("{kind: Pod, metadata: {name: web}, spec: {containers: [{name: main}]}}")["items"]
    assert (item["asked"], item["fit"], item["places"], item["ways"]) == (1, 1, [], [])


MIXED = {"a": {"gpus": [16000], "pin": "direct"}, "b": {"gpus": [9000], "pin": "plugin"}}


def test_without_a_source_the_nodes_way_of_pinning_decides() -> None:
    for pin in ("direct", "plugin"):
        cluster = Cluster({"a": {"gpus": [16000], "pin": pin}}, [])
        (item,) = sent(whatif.answer(whatif.trying(Question(pod()), read(cluster), None), None))["items"]
        assert (item["fit"], item["explanation"]["admission"]) == (1, "nodes")


def test_where_nodes_pin_in_different_ways_and_nothing_can_be_read_both_answers_are_told() -> None:
    cluster = Cluster(MIXED, [])
    shown = sent(whatif.answer(whatif.trying(Question(pod(12000)), read(cluster), None), None))
    (item,) = shown["items"]
    assert (item["fit"], item["explanation"]["admission"]) == (0, "unknown")
    assert item["explanation"]["otherwise"]["verdict"] == "fits"
    assert any("it is not known whether gpushare's admission policy will change p" in note for note in shown["notes"])


def test_with_a_source_the_admission_policy_is_read() -> None:
    cluster = Cluster(MIXED, [])
    cluster.policy = {}
    assert tried(pod(12000), cluster)["items"][0]["fit"] == 1
    cluster.policy = None
    assert tried(pod(12000), cluster)["items"][0]["fit"] == 0


def bomb(list_of: str) -> str:
    first, more = list_of.split("|")
    return f"a0: &a0 {first}\n" + "".join(
        f"a{i}: &a{i} {more.replace('X', ','.join([f'*a{i - 1}'] * 10))}\n" for i in range(1, 12)
    )


@pytest.mark.parametrize(
    "text",
    [
        bomb("[x,x,x,x,x,x]|[X]"),
        bomb("{k: v}|{<<: [X]}"),  # merge keys copy
        bomb("{k: v}|{b: [X]}"),
        "a: &a [*a]",
        "a: &a {<<: *a}",
        "a: &a [" + "x," * 9000 + "]\nb: [" + "*a," * 9000 + "]",
    ],
)
def test_aliases_that_unfold_to_too_much(text: str) -> None:
    assert refused(text).why == "its aliases unfold to more than 20,000 values"


@pytest.mark.parametrize("text", ["- a\n" * 21_000, "---\n" * 21_000, "{" + "a: b," * 11_000 + "}"])
def test_more_values_than_are_read_here(text: str) -> None:
    assert refused(text).why == "it has more than 20,000 values"


@pytest.mark.parametrize("text", ["[" * 5_000, "{a: " * 30_000, "- " * 100_000, "{kind: List, items: [" * 3_000])
def test_what_is_nested_too_deeply(text: str) -> None:
    assert refused(text).why == "it is nested too deeply"


@pytest.mark.parametrize("number", ["9" * 100_000, "0x" + "f" * 100_000, "1" + ":1" * 50_000, "0b" + "1" * 900])
def test_numbers_that_are_too_long(number: str) -> None:
    for text in (pod(number), deployment(number), number):
        assert "a number with" in refused(text).why


@pytest.mark.parametrize("replicas", [100_000, 1_001, -1, 10**400])
def test_more_replicas_than_are_placed_one_by_one(replicas: int) -> None:
    assert "0 to 1,000 are placed one by one here" in refused(pod(), replicas=replicas).why


def test_more_replicas_are_written_than_are_placed_one_by_one() -> None:
    assert refused(deployment(100_000)).what == "the text: Deployment d asks for 100000 replicas"
    assert refused(deployment(9_000)).what == "9,000 replicas are asked for"
    assert refused("\n---\n".join([deployment(501)] * 2)).what == "1,002 replicas are asked for"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no pod in the text"),
        ("# nothing", "no pod in the text"),
        ("\x00\x01\x02", "the text is no YAML"),
        ("a: \ud800", "the text is no YAML"),
        ("a: b: c", "the text is no YAML"),
        ("!!python/object/apply:os.system ['true']", "the text is no YAML"),
        ("just words", "the text: document 1 is no Kubernetes object"),
        ("{kind: Service, metadata: {name: s}}", "no pod in the text"),
        ("{kind: Pod, spec: {}}", "the text: a Pod without a name"),
        ("a" * (LIMIT + 1), "the text is larger than 256 KiB"),
        ("&a " + "x" * (1 << 20), "the text is larger than 256 KiB"),
        ("é" * (LIMIT // 2 + 1), "the text is larger than 256 KiB"),
        ("\n---\n".join([pod()] * 21), "the text has 21 objects with pods"),
    ],
)
def test_a_text_that_is_no_good_gets_one_clear_sentence(text: str, what: str) -> None:
    assert refused(text).what == what


def test_an_unknown_policy_gets_one_clear_sentence() -> None:
    error = refused(pod(), policy="best")
    assert (error.what, error.way) == ('no policy "best"', "one of these")
    assert "binpack" in error.why
    assert len(refused(pod(), policy="x" * 100_000).what) < 100


def test_the_way_out_names_a_file_and_not_the_text() -> None:
    assert refused("a: b: c").way == "kubectl apply --dry-run=server -f FILE names every fault"
