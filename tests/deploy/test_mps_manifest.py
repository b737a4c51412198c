"""deploy/mps-ds.yaml runs what there is, where the node part and the clients look for it."""

import re

import pytest
import yaml

import gpushare
from gpushare.cli import mps
from gpushare.core.facts import names
from tests.support import manifests

NAME = "mps-ds.yaml"


def pod() -> manifests.Object:
    spec: manifests.Object = manifests.one(NAME, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def test_it_runs_the_daemon_where_everybody_looks_for_it() -> None:
    (container,) = pod()["containers"]
    assert container["args"] == ["mps"]
    assert container["image"] == f"gpushare:{gpushare.__version__}"
    mounted = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"]}
    assert {mount["mountPath"]: mounted[mount["name"]] for mount in container["volumeMounts"]} == {
        names.MPS_PIPE_FOLDER: names.MPS_PIPE_FOLDER,
        names.MPS_STATUS_FOLDER: names.MPS_STATUS_FOLDER,
    }
    assert {probe["httpGet"]["port"] for probe in (container["livenessProbe"], container["readinessProbe"])} == {
        int(mps.PORT)
    }


def test_it_shares_memory_and_process_ids_with_the_clients_of_the_node() -> None:
    assert pod()["hostIPC"] is pod()["hostPID"] is True


def test_an_update_does_not_end_the_programs_of_clients_by_itself() -> None:
    assert manifests.one(NAME, "DaemonSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize("name", ["node-ds.yaml", "nvidia-ds.yaml"])
def test_the_node_part_reads_its_reports_after_two_signs_are_removed(name: str) -> None:
    text = (manifests.DEPLOY / name).read_text("utf-8")
    mount, volume = (yaml.safe_load(line)[0] for line in re.findall(r"^ +# (- \{name: mps,.*)$", text, re.MULTILINE))
    assert mount == {"name": "mps", "mountPath": names.MPS_STATUS_FOLDER, "readOnly": True}
    assert volume == {"name": "mps", "hostPath": {"path": names.MPS_STATUS_FOLDER, "type": "DirectoryOrCreate"}}
    assert f"--mps-status={names.MPS_STATUS_FOLDER}" in text
