"""The node part's manifest: on every labelled node, with what it needs and no more."""

import pytest
import yaml

import gpushare
from gpushare.node import app, observer, part
from gpushare.node.usage.overuse import Tolerance
from tests.support import manifests

LABELS = {"app": "gpushare", "component": manifests.NODE}


def pod() -> manifests.Object:
    return dict(manifests.one("node-ds.yaml", "DaemonSet")["spec"]["template"]["spec"])


def container() -> manifests.Object:
    (found,) = pod()["containers"]
    return dict(found)


def test_it_runs_on_every_labelled_node_whatever_its_taints() -> None:
    assert pod()["nodeSelector"] == {"gpushare": "true"}
    assert pod()["tolerations"] == [{"operator": "Exists"}]
    assert pod()["priorityClassName"] == "system-node-critical"


def test_all_its_objects_are_named_and_labelled_alike() -> None:
    documents = manifests.documents("node-ds.yaml")
    assert [d["kind"] for d in documents] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"]
    assert all(d["metadata"]["name"] == manifests.NODE and d["metadata"]["labels"] == LABELS for d in documents)
    spec = documents[-1]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == LABELS
    assert pod()["serviceAccountName"] == manifests.NODE
    (account,) = manifests.one("node-ds.yaml", "ClusterRoleBinding")["subjects"]
    assert account == {"kind": "ServiceAccount", "name": manifests.NODE, "namespace": "kube-system"}


def test_the_image_is_the_one_we_make() -> None:
    assert container()["image"] == f"gpushare:{gpushare.__version__}"


def test_it_is_root_for_kubelets_folders_and_nothing_more() -> None:
    assert container()["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert "limits" not in container()["resources"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"]}
    assert {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]} == paths
    assert set(paths.values()) == {"/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources"}


def test_it_sees_all_gpus_and_asks_the_driver_only() -> None:
    env = {entry["name"]: entry.get("value") for entry in container()["env"]}
    assert env == {
        "NODE_NAME": None, "POD_IP": None, "POD_NAME": None, "POD_NAMESPACE": None,
        "NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility",
    }  # fmt: skip
    named = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container()["env"][:4]}
    assert named == {
        "NODE_NAME": "spec.nodeName", "POD_IP": "status.podIP",
        "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace",
    }  # fmt: skip


def test_it_is_given_the_time_to_say_that_it_drains() -> None:
    assert pod()["terminationGracePeriodSeconds"] > part.DRAIN_SECONDS + 5


def test_its_words_start_what_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    config = manifests.node_config(container()["args"], monkeypatch)
    assert config == app.Config("gpu-a", "MiB", "auto", observing=manifests.OBSERVING)
    assert pod()["hostNetwork"]
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container()[probe]["httpGet"] == {"host": config.host, "port": config.port, "path": path}
    assert container()["ports"] == [
        {"name": "http", "containerPort": config.port, "hostPort": config.port, "hostIP": config.host},
        {"name": "metrics", "containerPort": 9400, "hostPort": 9400},
    ]


@pytest.mark.parametrize("name", ["node-ds.yaml", "nvidia-ds.yaml", "device-plugin-ds.yaml"])
def test_it_sees_the_nodes_processes_only_if_a_sign_is_removed(name: str) -> None:
    (daemonset,) = (d for d in manifests.documents(name) if d["kind"] == "DaemonSet")
    assert "hostPID" not in daemonset["spec"]["template"]["spec"]
    text = (manifests.DEPLOY / name).read_text("utf-8")
    changed = text.replace("# hostPID: true #", "hostPID: true #")
    (daemonset,) = (d for d in yaml.safe_load_all(changed) if d["kind"] == "DaemonSet")
    assert daemonset["spec"]["template"]["spec"]["hostPID"] is True


def test_what_is_said_about_over_use_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    def observing(*words: str) -> observer.Config:
        return manifests.node_config(["node", *words], monkeypatch).observing

    told = observing()
    assert (told.tolerance, told.grace, told.evicts, told.proc) == (Tolerance(0.05, 256 << 20), 60.0, False, "")
    assert observing("--overuse-tolerance=10%").tolerance == Tolerance(0.1, 0)
    assert observing("--overuse-tolerance=2GiB").tolerance == Tolerance(0, 2 << 30)
    assert observing("--overuse-tolerance=0%,1MiB").tolerance == Tolerance(0, 1 << 20)
    told = observing("--on-overuse=evict", "--overuse-grace=2.5", "--proc=/proc")
    assert (told.evicts, told.grace, told.proc) == (True, 2.5, "/proc")
