"""deploy/dashboard.yaml: it may do what it does and nothing else, changes nothing, and runs what there is."""

from typing import Any

import pytest

import gpushare
from gpushare import cli
from gpushare.dashboard import app
from gpushare.dashboard.live.cluster import Live
from gpushare.kube.auth import login
from gpushare.kube.reflector import Reflector
from tests.deploy import test_rights
from tests.support import manifests

NAME = "dashboard.yaml"
FOLDER = test_rights.SOURCES / "dashboard"


async def watches(monkeypatch: pytest.MonkeyPatch) -> dict[str, Reflector[Any]]:
    """Those that it would run."""
    found: list[Reflector[Any]] = []

    async def run(self: Reflector[Any]) -> None:
        found.append(self)

    monkeypatch.setattr(Reflector, "run", run)
    await Live().run(test_rights.Recorded())
    return {str(number): reflector for number, reflector in enumerate(found)}


async def test_the_dashboard_may_do_what_it_does_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    running = await watches(monkeypatch)
    assert len(running) == 4
    asked = await test_rights._rights((*sorted(FOLDER.rglob("*.py")), *test_rights.REVIEWING), lambda _: running)
    # Events of a pod are read in its namespace, which may be any.
    assert test_rights._granted(NAME) == {("" if where == "ns" else where, *what) for where, *what in asked.rights}
    assert not asked.others


def test_it_changes_nothing() -> None:
    granted = test_rights._granted(NAME)
    writes = {(group, what) for _, group, what, verb in granted if verb not in ("get", "list", "watch")}
    assert writes == {("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")}
    assert not [what for _, _, what, _ in granted if "secret" in what]


def test_it_runs_the_command_with_as_little_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[app.Config] = []

    async def run(config: app.Config, *_: Any) -> None:
        found.append(config)

    monkeypatch.setattr(app, "run", run)
    monkeypatch.setattr(login, "load", lambda *_: None)
    container = manifests.container(NAME, app.NAME)
    assert cli.main(container["args"]) == 0
    assert found == [app.Config("0.0.0.0", 8443, in_cluster=True)]
    assert container["image"] == f"gpushare:{gpushare.__version__}"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert {variable["name"] for variable in container["env"]} == {"POD_NAMESPACE", "POD_IP"}


def test_service_and_probes_ask_where_it_listens() -> None:
    container = manifests.container(NAME, app.NAME)
    (port,) = manifests.one(NAME, "Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (8443, container["ports"][0]["name"])
    assert container["ports"][0]["containerPort"] == 8443
    assert manifests.one(NAME, "Service")["metadata"]["name"] == app.NAME  # a name that it answers to
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"scheme": "HTTPS", "port": "https", "path": path}
