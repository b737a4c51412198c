"""deploy/operator/validator.yaml: it may do what it does and nothing else, and it runs what there is."""

import signal
from pathlib import Path
from typing import Any

import pytest

import gpushare
from gpushare import cli
from gpushare.core.facts import names
from gpushare.kube import client
from gpushare.kube.auth import login
from gpushare.kube.reflector import Reflector
from gpushare.validate import app
from gpushare.validate.machine.host import Places
from gpushare.validate.node import Sight
from gpushare.validate.workload.trial import Config as TrialConfig
from tests.deploy import test_rights
from tests.support import manifests

NAME = "operator/validator.yaml"
FOLDER = test_rights.SOURCES / "validate"
WAITS = FOLDER / "telling.py"  # runs under the accounts of those that wait
WAITING = ("node-ds.yaml", "nvidia-ds.yaml", "mps-ds.yaml")
OWN_PODS = {("kube-system", "", "pods", verb) for verb in ("get", "create", "delete")}


def pod() -> manifests.Object:
    spec: manifests.Object = manifests.one(NAME, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def container() -> manifests.Object:
    (found,) = pod()["containers"]
    return dict(found)


def watches(api: client.Api) -> dict[str, Reflector[Any]]:
    return {"node": Sight(api, "node").watch}


async def test_the_validator_may_do_what_it_does_and_nothing_else() -> None:
    """Pods are made, read and deleted in its own namespace only."""
    sources = {*FOLDER.rglob("*.py")} - {WAITS}
    used = (*sorted(sources), *test_rights.USED_TO_BE_SCRAPED, *test_rights.USED_BY_ALL)
    asked = await test_rights._rights(used, watches)
    granted = test_rights._granted(NAME)
    assert granted >= OWN_PODS
    assert {("", *what) if (where, *what) in OWN_PODS else (where, *what) for where, *what in granted} == asked.rights
    assert not asked.others


@pytest.mark.parametrize("name", WAITING)
async def test_whoever_waits_may_ask_why_and_say_so(name: str) -> None:
    asked = await test_rights._rights((WAITS, *test_rights.USED_BY_ALL), lambda _: {})
    assert asked.rights <= test_rights._granted(name)


def test_it_runs_the_command_on_the_nodes_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[app.Config] = []

    async def run(config: app.Config, access: login.Access) -> signal.Signals:
        seen.append(config)
        return signal.SIGTERM

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(login, "load", lambda *_: login.Access("http://127.0.0.1:1"))
    variables = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container()["env"]}
    assert variables == {
        "NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace",
    }  # fmt: skip
    for name in variables:
        monkeypatch.setenv(name, name.lower())
    monkeypatch.delenv("OPERAND_IMAGE", raising=False)
    words = [word.replace("=/host", f"={tmp_path}") for word in container()["args"]]
    assert cli.main(words) == 0
    assert seen == [app.Config(TrialConfig("node_name", "pod_namespace", "pod_name"), Places(tmp_path))]
    assert container()["image"] == f"gpushare:{gpushare.__version__}"
    probes = (container()["livenessProbe"], container()["readinessProbe"])
    assert {probe["httpGet"]["port"] for probe in probes} == {app.PORT}


def test_it_writes_to_the_folder_of_ready_files_only() -> None:
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod()["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container()["volumeMounts"]}
    assert {path for path, mount in mounts.items() if not mount.get("readOnly")} == {names.VALIDATIONS_FOLDER}
    assert paths[mounts[names.VALIDATIONS_FOLDER]["name"]] == names.VALIDATIONS_FOLDER
    assert paths[mounts["/host"]["name"]] == "/"
    assert container()["securityContext"]["readOnlyRootFilesystem"]


def test_its_account_is_bound_in_both_ways() -> None:
    subject = {"kind": "ServiceAccount", "name": "gpushare-validator", "namespace": "kube-system"}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert manifests.one(NAME, kind)["subjects"] == [subject]
    assert pod()["serviceAccountName"] == subject["name"]
