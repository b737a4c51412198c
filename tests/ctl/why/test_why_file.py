"""`gpushare why -f FILE`: every kind that holds pods, replicas one by one, and files that are no good."""

import os
import re
import threading
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpushare.ctl.screen import Screen
from gpushare.ctl.why import command, from_file
from gpushare.kube.errors import ApiError
from gpushare.obs.errors import UserError
from gpushare.view.source import Forbidden
from gpushare.view.why.files import manifests
from tests.ctl.why.cluster import HERE, NOW, Cluster, ask, world

CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "files.yaml").read_text())
WORDS = {"name", "only", "file", "text", "exit", "says", "begins", "has", "not", "notes", "classes", "hidden",
         "policy", "namespaces", "refuses", "posts"}  # fmt: skip
CONTAINER = "{name: main, resources: {limits: {aliyun.com/gpu-mem: 3000}}}"
POD = f"{{kind: Pod, metadata: {{name: p}}, spec: {{containers: [{CONTAINER}]}}}}"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_kind_of_file(case: dict[str, Any]) -> None:
    assert set(case) <= WORDS
    Path(case["file"]).write_text(case["text"])
    cluster = Cluster(case["only"], []) if "only" in case else world()
    cluster.classes, cluster.hidden = case.get("classes", {}), tuple(case.get("hidden", ()))
    cluster.policy, cluster.namespaces = case.get("policy"), case.get("namespaces", {})
    cluster.refuses = ApiError(*case["refuses"]) if "refuses" in case else None
    answer = ask(cluster, filename=case["file"])
    assert answer.out == case.get("says", answer.out)
    assert answer.out.startswith(case.get("begins", ""))
    for line in case.get("has", []):
        assert line in answer.out
    for line in case.get("not", []):
        assert line not in answer.out
    assert answer.err == "".join(f"note: {note}\n" for note in case.get("notes", []))
    assert answer.code == case["exit"]
    posted = [path for path in cluster.asked if path.startswith("POST ")]
    assert len(posted) == case.get("posts", len(posted))


def test_stdin_is_a_file_too() -> None:
    answer = ask(world(), filename="-", stdin=POD)
    assert answer.out == "p (stdin) would fit now: gpu-c GPU 1, 6536 of 40536 MiB free, 3536 left after it.\n"


def test_the_namespace_of_a_file_wins_over_that_of_the_option_and_that_over_the_context() -> None:
    named = POD.replace("name: p", "name: p, namespace: own")
    asked: dict[str, Any] = {"filename": "-", "output": "json", "default_namespace": "context"}
    assert ask(world(), stdin=named, namespace="given", **asked).json["items"][0]["pod"]["namespace"] == "own"
    assert ask(world(), stdin=POD, namespace="given", **asked).json["items"][0]["pod"]["namespace"] == "given"
    assert ask(world(), stdin=POD, **asked).json["items"][0]["pod"]["namespace"] == "context"


def test_the_cluster_is_read_once_and_asked_about_each_pod() -> None:
    cluster = world()
    ask(cluster, filename="-", stdin=f"{POD}\n---\n{POD}\n---\n{POD}")
    read = ["/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/kube-system/configmaps"]
    assert cluster.asked == [*read, *["POST /api/v1/namespaces/default/pods"] * 3]


def test_what_needs_no_cluster_is_answered_without_one() -> None:
    cluster = world()
    assert ask(cluster, filename="-", stdin=POD.replace("3000", "4Gi")).code == 1
    assert ask(cluster, filename="-", stdin=POD.replace("aliyun.com/gpu-mem: 3000", "cpu: 1")).code == 0
    assert cluster.asked == []


def test_what_is_written_is_what_is_tried_without_what_a_cluster_adds() -> None:
    cluster = world()
    spec = (
        f"{{nodeName: gpu-a, schedulerName: null, volumes: [{{name: v, emptyDir: {{}}}}], containers: [{CONTAINER}]}}"
    )
    meta = "{name: p, uid: u, resourceVersion: '7', labels: {a: b}, ownerReferences: [{name: x}]}"
    ask(cluster, filename="-", stdin=f"{{kind: Pod, metadata: {meta}, spec: {spec}, status: {{phase: Running}}}}")
    (tried,) = cluster.tried
    assert {key: value for key, value in tried["metadata"].items() if value} == {
        "name": "p", "namespace": "default", "labels": {"a": "b"}
    }  # fmt: skip
    assert tried["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert not {"nodeName", "schedulerName", "status"} & {*tried, *tried["spec"]}


@pytest.mark.parametrize("name", ["web", "web.", "x" * 63, "y" * 56 + "-z"])
def test_pods_of_a_template_are_tried_under_a_generated_name(name: str) -> None:
    cluster = world()
    text = f"{{kind: Job, metadata: {{name: {name}}}, spec: {{template: {{spec: {{containers: [{CONTAINER}]}}}}}}}}"
    assert ask(cluster, filename="-", stdin=text).out.startswith(f"{name} (stdin) would fit now")
    (tried,) = cluster.tried
    assert re.fullmatch(r"[a-z][a-z-]*[a-z]-", tried["metadata"]["generateName"])
    assert len(tried["metadata"]["generateName"]) <= 58


def test_a_pod_with_a_claim_is_a_pod_like_any_other() -> None:
    claim = "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]"
    assert ask(world(), filename="-", stdin=POD.replace("spec: {", f"spec: {{{claim}, ")).code == 0


def test_the_pods_of_a_stateful_set_have_the_volumes_of_its_claims() -> None:
    cluster = world()
    template = f"{{spec: {{volumes: [{{name: tmp}}, {{name: data}}], containers: [{CONTAINER}]}}}}"
    claims = "[{metadata: {name: data}}, {metadata: {name: logs}}]"
    spec = f"{{volumeClaimTemplates: {claims}, template: {template}}}"
    ask(cluster, filename="-", stdin=f"{{kind: StatefulSet, metadata: {{name: db}}, spec: {spec}}}")
    volumes = cluster.tried[0]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes] == ["tmp", "data", "logs"]
    assert volumes[1] == {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


@pytest.mark.parametrize("answer", [b"{}", b"<html>", b'{"spec": {"containers": null}}'])
def test_an_answer_to_a_dry_run_that_is_no_pod_is_not_believed(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = world()
    monkeypatch.setattr(cluster, "dry_run", lambda path, draft: answer)
    said = ask(cluster, filename="-", stdin=POD)
    assert said.out.startswith("p (stdin) would fit now: gpu-c GPU 1")
    assert said.err.startswith("note: pods in namespace default are checked without a dry run (the API server's answer")


def test_who_may_not_create_pods_is_told_so_once() -> None:
    cluster = world()
    cluster.hidden = ("POST",)
    assert ask(cluster, filename="-", stdin=f"{POD}\n---\n{POD}").err.count("without a dry run") == 1


def test_the_worst_answer_decides_the_exit_code() -> None:
    large = POD.replace("3000", "50000")
    assert ask(world(), filename="-", stdin=f"{POD}\n---\n{large}").code == 1
    assert ask(world(), filename="-", stdin=f"{large}\n---\n{POD}").code == 1
    assert ask(world(), filename="-", stdin=f"{POD}\n---\n{POD}").code == 0


def test_who_may_not_read_the_cluster_is_told_which_right_is_missing() -> None:
    cluster = world()
    cluster.hidden = ("/api/v1/pods",)
    with pytest.raises(Forbidden) as raised:
        ask(cluster, filename="-", stdin=POD)
    assert raised.value.code == 3


ENDLESS = "its aliases unfold to more than 1,000,000 values"
BAD = {
    "": ("no pod in pod.yaml", "it is empty"),
    "---\n---\n": ("no pod in pod.yaml", "it is empty"),
    "# nothing\n": ("no pod in pod.yaml", "it is empty"),
    "{kind: Service, metadata: {name: web}}": ("no pod in pod.yaml", "it holds Service web"),
    "{kind: List, items: []}": ("no pod in pod.yaml", "it is empty"),
    "{kind: Deployment, metadata: {name: web}, spec: {}}": ("no pod in pod.yaml", "it holds Deployment web"),
    "kind: Pod\n  metadata: {}": ("pod.yaml is no YAML", "line 2: mapping values are not allowed here"),
    "a: [1": ("pod.yaml is no YAML", "line 1: "),
    "a: \x07": ("pod.yaml is no YAML", "special characters are not allowed"),
    "just words": ("pod.yaml: document 1 is no Kubernetes object", "it is just words"),
    "- kind: Pod": ("pod.yaml: document 1 is no Kubernetes object", "it is [{'kind': 'Pod'}]"),
    "metadata: {name: x}": ("pod.yaml: an object without a kind", "it is {'metadata': {'name': 'x'}}"),
    "kind: 7": ("pod.yaml: an object without a kind", "it is {'kind': 7}"),
    "{kind: Pod, spec: {containers: [{name: a}]}}": ("pod.yaml: a Pod without a name", "metadata.name is missing"),
    "{kind: Pod, metadata: {name: p}, spec: {}}": ("pod.yaml: Pod p has no containers", "spec.containers is empty"),
    "{kind: Pod, metadata: {name: p}}": ("pod.yaml: Pod p has no containers", "spec.containers is empty"),
    POD.replace("name: p", "name: p, annotations: {aliyun.com/gpu-count: 2}"): (
        "pod.yaml: Pod p is not a valid pod",
        "Expected `str`, got `int` - at `$.metadata.annotations[...]`",
    ),
    POD.replace("{name: main", "{args: {true: x}, name: main"): (
        "pod.yaml: Pod p is not a valid pod",
        "Only dicts with str-like or number-like keys are supported",
    ),
    POD.replace("[{name: main", "[main, {name: main"): ("pod.yaml: Pod p is not a valid pod", "Expected `object`"),
    "{kind: Pod, metadata: {name: p}, spec: {containers: {name: a}}}": (
        "pod.yaml: Pod p is not a valid pod",
        "Expected `array",
    ),
    "{kind: Job, metadata: {name: j}, spec: {parallelism: two, template: {spec: {containers: [{name: a}]}}}}": (
        "pod.yaml: Job j asks for 'two' replicas",
        "a whole number up to 10,000",
    ),
    "{kind: Deployment, metadata: {name: d}, spec: {replicas: -1, template: {spec: {containers: [{name: a}]}}}}": (
        "pod.yaml: Deployment d asks for -1 replicas",
        "a whole number up to 10,000",
    ),
    "{kind: Deployment, metadata: {name: d}, spec: {replicas: 99999, template: {spec: {containers: [{name: a}]}}}}": (
        "pod.yaml: Deployment d asks for 99999 replicas",
        "a whole number up to 10,000",
    ),
    "a: &a\n  kind: Pod\n  b: *a": ("pod.yaml is no YAML", ENDLESS),
    "kind: Pod\nmetadata: {name: p}\nspec: &s\n  containers: [{name: a}]\n  volumes: [*s]": (
        "pod.yaml is no YAML",
        ENDLESS,
    ),
    "kind: List\nitems: &i\n- kind: List\n  items: *i": ("pod.yaml is no YAML", ENDLESS),
    "".join(f"- &a{i} [{', '.join([f'*a{i - 1}' if i else '1'] * 10)}]\n" for i in range(9)): (
        "pod.yaml is no YAML",
        ENDLESS,
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_is_no_good_gets_one_clear_sentence(text: str) -> None:
    what, why = BAD[text]
    Path("pod.yaml").write_text(text)
    cluster = world()
    with pytest.raises(UserError) as raised:
        ask(cluster, filename="pod.yaml")
    assert raised.value.what == what
    assert raised.value.why.startswith(why)
    assert raised.value.way
    assert raised.value.code == 2
    assert cluster.asked == []  # nobody is asked about nonsense


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    Path("binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder").mkdir()
    said = {
        "nowhere.yaml": "no such file or directory",
        "folder": "is a directory",
        "binary": "it is not UTF-8",
        "nul\x00": "embedded null byte",
    }
    for name, why in said.items():
        with pytest.raises(UserError) as raised:
            ask(world(), filename=name)
        assert (raised.value.why, raised.value.code) == (why, 2)


class Endless(BytesIO):
    """A stream that goes on as long as somebody reads, and counts what it gave."""

    given = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert size >= 0, "it has no end"
        self.given += size
        return bytes(size)


@pytest.mark.parametrize("filename", ["-", "large.yaml", "/dev/zero"])
def test_no_more_than_1_mib_is_read_and_that_is_said(filename: str) -> None:
    Path("large.yaml").write_text(f"{POD}\n# {'x' * (1 << 20)}")
    cluster, stdin = world(), Endless()
    options = command.Options(filename=filename)
    with pytest.raises(UserError) as raised:
        command.run(options, cluster, Screen(StringIO(), StringIO()), now=NOW, stdin=stdin)
    name = "stdin" if filename == "-" else filename
    assert raised.value.render() == (
        f"error: {name} is larger than 1 MiB\n"
        "  why: gpushare why reads at most 1 MiB of a file or of stdin\n"
        "  try: -f FILE with the pods alone, or in several files"
    )
    assert raised.value.code == 2
    assert stdin.given == ((1 << 20) + 1 if filename == "-" else 0)
    assert cluster.asked == []


def test_a_pipe_that_does_not_block_is_read_to_its_end() -> None:
    """Another program may have left it so. What is written later is a part of the file all the same."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    half = len(POD) // 2
    os.write(writer, POD[:half].encode())

    def write_the_rest() -> None:
        os.write(writer, POD[half:].encode())
        os.close(writer)

    later = threading.Timer(0.05, write_the_rest)
    later.start()
    with os.fdopen(reader, "rb") as stdin:
        assert [item.pod.metadata.name for item in from_file.read("-", "default", stdin).items]
    later.join()


def test_a_file_of_1_mib_is_read() -> None:
    text = f"{POD}\n# "
    Path("large.yaml").write_text(text + "x" * ((1 << 20) - len(text)))
    assert ask(world(), filename="large.yaml").code == 0


def test_json_is_yaml() -> None:
    found = manifests.read(
        '{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}}', "f", "n"
    )
    assert [(item.kind, item.name, item.pod.metadata.namespace) for item in found.items] == [("Pod", "p", "n")]


def test_nulls_are_not_there() -> None:
    meta, spec = "{name: p, namespace: null, annotations: null}", "{containers: [{name: a, env: null}]}"
    text = f"{{kind: Pod, metadata: {meta}, spec: {spec}}}"
    (item,) = manifests.read(text, "f", "n").items
    assert (item.pod.metadata.namespace, item.pod.metadata.annotations) == ("n", None)
