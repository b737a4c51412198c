"""What is not understood is refused, with the reason and a way out, before anything is changed."""

import json
from collections.abc import Callable

import pytest
import yaml

from gpushare.obs.errors import BAD_INPUT, UserError
from tests.install import texts
from tests.install.texts import Object


def _two(pod: Object, container: Object) -> None:
    pod["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})


def _shell(pod: Object, container: Object) -> None:
    container["command"] = ["/bin/sh", "-c", "exec kube-scheduler --leader-elect=true"]


def _no_command(pod: Object, container: Object) -> None:
    container["args"] = container.pop("command")


def _another(pod: Object, container: Object) -> None:
    container["command"][0] = "kube-controller-manager"


def _config_map(pod: Object, container: Object) -> None:
    container["command"].append("--config=/config/scheduler.yaml")
    container["volumeMounts"].append({"name": "config", "mountPath": "/config"})
    pod["spec"]["volumes"].append({"name": "config", "configMap": {"name": "scheduler"}})


def _not_mounted(pod: Object, container: Object) -> None:
    container["command"].append("--config=/config/scheduler.yaml")


def _digest(pod: Object, container: Object) -> None:
    container["image"] = "registry.k8s.io/kube-scheduler@sha256:" + "0" * 64


def _latest(pod: Object, container: Object) -> None:
    container["image"] = "registry.example.com:5000/kube-scheduler:latest"


def _old(pod: Object, container: Object) -> None:
    container["image"] = "k8s.gcr.io/kube-scheduler:v1.18.20"


def _our_volume(pod: Object, container: Object) -> None:
    pod["spec"]["volumes"].append({"name": "gpushare", "emptyDir": {}})


def _our_place(pod: Object, container: Object) -> None:
    container["volumeMounts"].append({"name": "kubeconfig", "mountPath": "/etc/kubernetes/gpushare"})


def _policy_map(pod: Object, container: Object) -> None:
    container["command"].append("--policy-configmap=mine")


def _both(pod: Object, container: Object) -> None:
    container["command"] += ["--config=/a", "--policy-config-file=/b"]


def _lost_flag(pod: Object, container: Object) -> None:
    container["command"].append("--scheduler-name=mine")


def _odd_flag(pod: Object, container: Object) -> None:
    container["command"].append("--kube-api-qps=many")


def _words(pod: Object, container: Object) -> None:
    container["command"].append(5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_two, "2 containers"),
        (_shell, "through a shell"),
        (_no_command, "no command"),
        (_another, "does not run kube-scheduler"),
        (_config_map, "configMap"),
        (_not_mounted, "nothing of the machine is mounted there"),
        (_digest, "--kubernetes-version"),
        (_latest, "has no tag that says it"),
        (_old, "too old"),
        (_our_volume, 'volume "gpushare" already'),
        (_our_place, "is taken"),
        (_policy_map, "from a ConfigMap"),
        (_both, "two configurations"),
        (_lost_flag, "ignores --scheduler-name"),
        (_odd_flag, "--kube-api-qps=many"),
        (_words, "lists of words"),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused(change: Callable[[Object, Object], None], reason: str) -> None:
    with pytest.raises(UserError) as refused:
        texts.made(texts.changed(change))
    assert reason in str(refused.value)
    assert (refused.value.code, bool(refused.value.way)) == (BAD_INPUT, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"a: [", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"a: 1\n---\nb: 2\n", "2 documents"),
        (b"- a\n", "not one object"),
        (b"apiVersion: apps/v1\nkind: Deployment\n", "not a Pod of v1"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "no name, or no spec"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n", "0 containers"),
    ],
)
def test_a_file_that_is_no_static_pod_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(UserError) as refused:
        texts.made(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("part", "wrong", "reason"),
    [
        ("volumeMounts", 1, "spec.containers[0].volumeMounts: expected list, got int"),
        ("volumeMounts", ["x"], "spec.containers[0].volumeMounts[0]: expected object, got str"),
        ("ports", [{"containerPort": "x"}], "ports[0].containerPort: expected int, got str"),
        ("readinessProbe", {"httpGet": "x"}, "readinessProbe.httpGet: expected object, got str"),
        ("livenessProbe", {"httpGet": {"host": 1}}, "livenessProbe.httpGet.host: expected str, got int"),
    ],
)
def test_a_part_that_is_of_another_kind_is_refused_with_its_place(part: str, wrong: object, reason: str) -> None:
    with pytest.raises(UserError) as refused:
        texts.made(texts.changed(lambda _, container: container.update({part: wrong})))
    assert reason in str(refused.value)


@pytest.mark.parametrize("wrong", [1, ["x"], [{"name": "a", "hostPath": []}], [{"name": "a", "hostPath": {}}]])
def test_volumes_that_are_none_are_refused(wrong: object) -> None:
    with pytest.raises(UserError, match=r"spec\.volumes"):
        texts.made(texts.changed(lambda pod, _: pod["spec"].update({"volumes": wrong})))


def test_a_configuration_whose_place_only_kubelet_knows_is_refused() -> None:
    def change(pod: Object, container: Object) -> None:
        container["command"].append("--config=/c/mine.yaml")
        container["volumeMounts"].append({"name": "c", "mountPath": "/c", "subPathExpr": "$(NODE)"})
        pod["spec"]["volumes"].append({"name": "c", "hostPath": {"path": "/etc/kubernetes"}})

    with pytest.raises(UserError, match="subPathExpr"):
        texts.made(texts.changed(change))


def test_a_manifest_that_contains_itself_is_refused() -> None:
    with pytest.raises(UserError, match="contains itself"):
        texts.made(texts.kubeadm() + b"x: &x {y: *x}\n")


def test_json_is_refused_because_it_could_not_be_changed_line_by_line() -> None:
    text = json.dumps(yaml.safe_load(texts.kubeadm()) | {"status": {}}).encode()
    with pytest.raises(UserError, match="in braces"):
        texts.made(text)


def test_an_anchor_that_would_change_another_place_is_refused() -> None:
    text = texts.kubeadm().decode()
    text = text.replace("    command:\n", "").replace("  - command:\n", "  - command: &words\n")
    text = text.replace("    name: kube-scheduler\n    ports", "    name: kube-scheduler\n    args: *words\n    ports")
    with pytest.raises(UserError, match="would mean something else"):
        texts.made(text.encode())


def test_the_user_may_say_the_version_where_the_image_does_not() -> None:
    plan = texts.made(texts.changed(_digest), version="v1.24.3")
    assert b"kubescheduler.config.k8s.io/v1beta3" in plan.content
    with pytest.raises(UserError, match="is not a version"):
        texts.made(texts.changed(_digest), version="new")
