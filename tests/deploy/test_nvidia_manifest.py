"""The manifest for nodes that sell whole GPUs: as the node part, on other nodes, with NVIDIA's folders."""

from pathlib import Path

import pytest

from gpushare.kubelet import paths
from gpushare.node.nvidia import app, cdi_file
from gpushare.node.nvidia.config_source import Places
from gpushare.node.nvidia.rules import flags
from tests.support import manifests

FILE, NAME = "nvidia-ds.yaml", "gpushare-nvidia"
LABELS = {"app": "gpushare", "component": NAME}
OF_POD = ("hostNetwork", "priorityClassName", "securityContext", "tolerations", "terminationGracePeriodSeconds")
OF_CONTAINER = ("image", "imagePullPolicy", "env", "ports", "livenessProbe", "readinessProbe", "securityContext")


def pod(name: str = FILE) -> manifests.Object:
    return dict(manifests.one(name, "DaemonSet")["spec"]["template"]["spec"])


def container(name: str = FILE) -> manifests.Object:
    (found,) = pod(name)["containers"]
    return dict(found)


def test_all_its_objects_are_named_and_labelled_alike() -> None:
    documents = manifests.documents(FILE)
    assert [d["kind"] for d in documents] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"]
    assert all(d["metadata"]["name"] == NAME and d["metadata"]["labels"] == LABELS for d in documents)
    assert pod()["serviceAccountName"] == NAME


def test_no_node_runs_it_and_the_node_part_for_shares() -> None:
    (ours,), (theirs,) = pod()["nodeSelector"].items(), pod("node-ds.yaml")["nodeSelector"].items()
    assert ours[0] == theirs[0]
    assert ours[1] != theirs[1]


def test_apart_from_that_it_runs_as_the_node_part_does() -> None:
    assert {key: pod()[key] for key in OF_POD} == {key: pod("node-ds.yaml")[key] for key in OF_POD}
    assert {key: container()[key] for key in OF_CONTAINER} == {
        key: container("node-ds.yaml")[key] for key in OF_CONTAINER
    }


def test_it_finds_what_it_needs_where_it_looks() -> None:
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"] if "hostPath" in volume}
    assert hosts == {name: mounts[name] for name in hosts}
    assert set(hosts.values()) == {str(Path(flags.KUBELET_SOCKET).parent), cdi_file.FOLDER}
    assert str(Path(paths.ROOT, paths.DEVICE_PLUGINS, paths.KUBELET_SOCKET)) == flags.KUBELET_SOCKET
    (configs,) = (volume for volume in pod()["volumes"] if volume["name"] not in hosts)
    assert configs["configMap"] == {"name": NAME, "optional": True}


def test_its_words_sell_gpus_with_the_config_of_the_nodes_label(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(folder="/available-configs", fallbacks=("named", "single", "empty"))
    config = app.Config("gpu-a", places=places, observing=manifests.OBSERVING)
    assert manifests.selling_config(container()["args"], monkeypatch) == config
