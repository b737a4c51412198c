"""What would be changed: kubeadm's manifests of five versions, other ways to write YAML, and flags that move."""

import json
from pathlib import Path

import pytest
import yaml

from gpushare.install import plan as plans
from gpushare.install.entries import FOLDER
from tests.install import texts
from tests.support import manifests

FILES = {"1.22": "policy.json", "1.23": "config-v1beta3.yaml"}  # of deploy/scheduler; from 1.25 on config-v1.yaml


@pytest.mark.parametrize("version", texts.VERSIONS)
def test_the_manifest_of_kubeadm_is_changed_as_written_down(version: str) -> None:
    plan = texts.made(texts.kubeadm(version))
    assert plan.after.decode() == (texts.DATA / f"edited-{version}.yaml").read_text("utf-8")
    assert plan.content.decode() == (texts.DATA / Path(plan.path).name).read_text("utf-8")


@pytest.mark.parametrize("version", texts.VERSIONS)
def test_the_configuration_says_what_the_file_in_deploy_says(version: str) -> None:
    shipped = (manifests.DEPLOY / "scheduler" / FILES.get(version, "config-v1.yaml")).read_text("utf-8")
    assert yaml.safe_load(texts.made(texts.kubeadm(version)).content) == yaml.safe_load(shipped)


@pytest.mark.parametrize("version", texts.VERSIONS)
def test_only_lines_are_added(version: str) -> None:
    plan = texts.made(texts.kubeadm(version))
    after = iter(plan.after.splitlines())
    assert all(line in after for line in plan.before.splitlines())
    assert len(plan.after.splitlines()) == len(plan.before.splitlines()) + 8


@pytest.mark.parametrize("version", texts.VERSIONS)
def test_the_second_time_there_is_nothing_to_do(version: str) -> None:
    first = texts.made(texts.kubeadm(version))
    pod = yaml.safe_load(first.after)
    assert {"name": "gpushare", "hostPath": {"path": FOLDER, "type": "Directory"}} in pod["spec"]["volumes"]
    second = plans.made(first.after, texts.NAME, texts.URL, {first.path: first.content}.__getitem__)
    assert (second.nothing_to_do, second.diff()) == (True, "")


def test_another_url_makes_another_file_so_that_kubelet_starts_the_scheduler_again() -> None:
    first = texts.made(texts.kubeadm())
    url = "http://10.0.0.7:12345/gpushare-scheduler"
    second = plans.made(first.after, texts.NAME, url, {first.path: first.content}.__getitem__)
    assert second.path != first.path
    assert second.path in second.after.decode()
    assert first.path not in second.after.decode()
    (entry,) = yaml.safe_load(second.content)["extenders"]
    assert entry["urlPrefix"] == url


def test_an_https_url_brings_the_clients_certificate() -> None:
    plan = texts.made(texts.kubeadm(), url="https://10.0.0.7:32766/gpushare-scheduler")
    (entry,) = yaml.safe_load(plan.content)["extenders"]
    assert entry["enableHTTPS"] is True
    assert entry["tlsConfig"]["certFile"] == f"{FOLDER}/client.crt"


# How a manifest may be written


def test_comments_blank_lines_and_quotes_stay() -> None:
    text = texts.kubeadm().decode()
    text = text.replace("- kube-scheduler\n", "- kube-scheduler # the program\n\n    # flags:\n")
    text = text.replace("      name: kubeconfig\n", '      name: "kubeconfig" # from kubeadm\n')
    text = text.replace("    name: kubeconfig\nstatus", "    name: 'kubeconfig'\n# the end\nstatus")
    after = texts.made(text.encode()).after.decode()
    lines = iter(after.splitlines())
    assert all(line in lines for line in text.splitlines())
    assert "- kube-scheduler # the program\n    - --config=" in after
    assert "    name: 'kubeconfig'\n  - hostPath:\n" in after


@pytest.mark.parametrize("indent", [2, 4, 7])
def test_lists_may_be_indented(indent: int) -> None:
    class Indented(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    text = yaml.dump(yaml.safe_load(texts.kubeadm()), Dumper=Indented, indent=indent).encode()
    assert yaml.safe_load(texts.made(text).after) == yaml.safe_load(texts.made(texts.kubeadm()).after)


def test_lists_in_brackets_grow_in_their_brackets() -> None:
    text = texts.kubeadm().decode()
    lines = text[text.index("  volumes:\n") : text.index("status: {}\n")]
    written = "  volumes: [{hostPath: {path: /etc/kubernetes/scheduler.conf}, name: kubeconfig}]\n"
    text = text.replace(lines, written)
    after = texts.made(text.encode()).after.decode()
    assert "name: kubeconfig}, {hostPath: {path: /etc/kubernetes/gpushare, type: Directory}, name: gpushare}]" in after


def test_a_command_in_brackets_gets_its_flag_there() -> None:
    text = texts.changed(lambda _, container: container.update(command=["kube-scheduler", "--leader-elect=true"]))
    text = text.replace(
        b"command:\n    - kube-scheduler\n    - --leader-elect=true", b"command: [kube-scheduler, -v=2]"
    )
    assert b"command: [kube-scheduler, --config=/etc/kubernetes/gpushare/scheduler-" in texts.made(text).after


def test_lists_that_are_missing_are_made() -> None:
    def change(pod: texts.Object, container: texts.Object) -> None:
        del pod["spec"]["volumes"], container["volumeMounts"]

    text = texts.changed(change)
    pod = yaml.safe_load(texts.made(text).after)
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["gpushare"]
    assert [mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]] == ["gpushare"]


def test_windows_line_ends_stay() -> None:
    after = texts.made(texts.kubeadm().replace(b"\n", b"\r\n")).after
    assert after.count(b"\n") == after.count(b"\r\n") == texts.kubeadm().count(b"\n") + 8


def test_a_text_without_an_end_of_line_is_continued_on_a_new_line() -> None:
    text = texts.kubeadm().replace(b"status: {}\n", b"").rstrip(b"\n")
    assert yaml.safe_load(texts.made(text).after)["spec"]["volumes"][-1]["name"] == "gpushare"


def test_flags_may_be_among_the_arguments() -> None:
    def change(_: texts.Object, container: texts.Object) -> None:
        container["args"] = [*container["command"][1:], "--config", texts.MINE]
        container["command"] = ["/usr/local/bin/kube-scheduler"]
        container["volumeMounts"].append({"name": "kubeconfig", "mountPath": texts.MINE})

    text = texts.changed(change).replace(b"path: /etc/kubernetes/scheduler.conf", b"path: /etc/kubernetes/mine.yaml")
    plan = texts.made(text, texts.configuration())
    (container,) = yaml.safe_load(plan.after)["spec"]["containers"]
    assert container["args"][-2:] == ["--config", plan.path]


# Flags that a configuration file switches off


def test_flags_that_would_no_longer_count_go_into_the_configuration() -> None:
    flags = ("--profiling=false", "--kube-api-qps=100", "--kube-api-burst=200", "--contention-profiling=False")
    content = yaml.safe_load(texts.made(texts.with_flags(*flags)).content)
    assert (content["enableProfiling"], content["enableContentionProfiling"]) == (False, False)
    assert content["clientConnection"] == {
        "kubeconfig": "/etc/kubernetes/scheduler.conf", "qps": 100, "burst": 200,
    }  # fmt: skip


def test_a_policy_leaves_the_flags_what_they_are() -> None:
    content = json.loads(texts.made(texts.with_flags("--profiling=false", version="1.22")).content)
    assert content["kind"] == "Policy"
    assert "enableProfiling" not in content


def test_the_probe_of_the_manifest_says_where_the_scheduler_is_asked() -> None:
    asked = {version: texts.made(texts.kubeadm(version)).manifest.health for version in ("1.22", "1.36")}
    assert asked == {"1.22": "https://127.0.0.1:10259/healthz", "1.36": "https://127.0.0.1:10259/readyz"}

    def bare(_: texts.Object, container: texts.Object) -> None:
        for probe in ("liveness", "readiness", "startup"):
            del container[f"{probe}Probe"]

    assert texts.made(texts.changed(bare)).manifest.health == "https://127.0.0.1:10259/healthz"
