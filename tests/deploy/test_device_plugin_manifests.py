"""The device plugin's manifests take the place of Aliyun's: its names, words and mounts, and fewer rights."""

from pathlib import Path

import pytest

import gpushare
from gpushare.kubelet import paths
from tests.support import manifests

RIGHTS, WORKLOAD = "device-plugin-rbac.yaml", "device-plugin-ds.yaml"
ACCOUNT, NAME = "gpushare-device-plugin", "gpushare-device-plugin-ds"
FOLDERS = (paths.DEVICE_PLUGINS, Path(paths.POD_RESOURCES).parent)
LABELS = {"app": "gpushare", "component": ACCOUNT}
OF_POD = ("hostNetwork", "nodeSelector", "priorityClassName", "securityContext", "tolerations")
OF_CONTAINER = ("image", "imagePullPolicy", "env", "ports", "livenessProbe", "readinessProbe", "securityContext")
# Capacity, policy and webhook are not its business.
OF_DIRECT_NODES = ("nodes/status", "mutatingadmissionpolicies", "mutatingwebhookconfigurations")


def pod() -> manifests.Object:
    return dict(manifests.one(WORKLOAD, "DaemonSet")["spec"]["template"]["spec"])


def container() -> manifests.Object:
    (found,) = pod()["containers"]
    return dict(found)


def test_its_objects_have_aliyuns_names_and_labels() -> None:
    rights = manifests.documents(RIGHTS)
    assert [d["kind"] for d in rights] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
    assert all(d["metadata"]["name"] == ACCOUNT and d["metadata"]["labels"] == LABELS for d in rights)
    (subject,) = manifests.one(RIGHTS, "ClusterRoleBinding")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}
    daemonset, labels = manifests.one(WORKLOAD, "DaemonSet"), {**LABELS, "name": NAME}
    # The selector of Aliyun's plugin, which cannot be changed: applied over it, ours takes its pods over.
    assert daemonset["spec"]["selector"]["matchLabels"] == labels
    assert daemonset["spec"]["template"]["metadata"]["labels"] == daemonset["metadata"]["labels"] == labels
    assert (daemonset["metadata"]["name"], pod()["serviceAccountName"]) == (NAME, ACCOUNT)
    assert container()["name"] == "gpushare"


def test_it_may_do_what_the_node_part_may_less_what_only_direct_nodes_need() -> None:
    granted = _rules("node-ds.yaml")
    needed = {right for right in granted if right[0] not in OF_DIRECT_NODES}
    assert _rules(RIGHTS) == needed | {("nodes", "get")}


def test_apart_from_names_and_words_it_runs_as_the_node_part_does() -> None:
    theirs = dict(manifests.one("node-ds.yaml", "DaemonSet")["spec"]["template"]["spec"])
    assert {key: pod()[key] for key in OF_POD} == {key: theirs[key] for key in OF_POD}
    assert pod()["terminationGracePeriodSeconds"] == theirs["terminationGracePeriodSeconds"]
    (their_container,) = theirs["containers"]
    of_discovery = ("POD_NAME", "POD_NAMESPACE")
    their_container["env"] = [one for one in their_container["env"] if one["name"] not in of_discovery]
    assert {key: container()[key] for key in OF_CONTAINER} == {key: their_container[key] for key in OF_CONTAINER}
    assert container()["image"] == f"gpushare:{gpushare.__version__}"
    assert "limits" not in container()["resources"]


def test_kubelets_sockets_are_where_it_looks_for_them() -> None:
    folders = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"]}
    assert {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]} == folders
    assert set(folders.values()) == {
        str(Path(paths.ROOT, paths.DEVICE_PLUGINS)),
        str(Path(paths.ROOT, paths.POD_RESOURCES).parent),
    }


@pytest.mark.parametrize(
    "words",
    [None, ["gpushare", "device-plugin", "-logtostderr", "--v=5", "--memory-unit=GiB"]],
    ids=["ours", "aliyuns"],
)
def test_its_words_start_a_device_plugin_that_counts_as_aliyuns(
    words: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = words or container()["command"]
    assert program == "gpushare"
    config = manifests.node_config(arguments, monkeypatch)
    assert (config.node, config.unit, config.pin) == ("gpu-a", "GiB", "plugin")


def _rules(name: str) -> set[tuple[str, str]]:
    rules = manifests.one(name, "ClusterRole")["rules"]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
