"""deploy/operator/{finder,discovery}.yaml: what programs that label nodes may do, and how little the finder needs."""

from typing import Any

from gpushare.kube import client
from gpushare.kube.labels.writer import Identity, Writer
from gpushare.kube.reflector import Reflector
from gpushare.node.finder import app
from tests.deploy.test_rights import SOURCES, Right, _granted, _rights
from tests.support import manifests

FINDER, DISCOVERY = "operator/finder.yaml", "operator/discovery.yaml"
USED = [*sorted((SOURCES / "kube" / "labels").glob("*.py")), *sorted((SOURCES / "node" / "finder").glob("*.py"))]
OWN_NODE = ("", "", "nodes", "patch")
MADE = ("", "nfd.k8s-sigs.io", "nodefeatures", "create")  # an apply of what is not there needs it besides


def pod() -> manifests.Object:
    spec: manifests.Object = manifests.one(FINDER, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def _finder(api: client.Api) -> dict[str, Reflector[Any]]:
    finder = app.Finder(app.Config("node"), api)
    return {"node": finder._watch, **_nfd(api)}


def _nfd(api: client.Api) -> dict[str, Reflector[Any]]:
    watch = Writer(api, Identity("node", "manager")).watch
    assert watch is not None
    return {"nfd": watch}


def anywhere(rights: set[Right]) -> set[Right]:
    """A single object may be in any namespace for the reader of paths; the role for it is of its own one."""
    return {("", group, what, verb) for _, group, what, verb in rights}


async def test_the_finder_may_do_what_it_does_and_nothing_else() -> None:
    asked = await _rights(USED, _finder)
    assert anywhere(_granted(FINDER)) == asked.rights | {MADE}
    assert not asked.others


async def test_what_it_writes_for_nfd_is_in_its_own_namespace() -> None:
    everywhere = {right for right in _granted(FINDER) if right[0] == ""}
    assert {right[3] for right in everywhere if right[2] == "nodefeatures"} == {"list", "watch"}
    assert not [right for right in everywhere if right[2] == "pods"]


async def test_discovery_may_do_what_the_node_parts_may_not_already() -> None:
    asked = await _rights([path for path in USED if "labels" in path.parts], _nfd)
    assert anywhere(_granted(DISCOVERY)) == (asked.rights | {MADE}) - {OWN_NODE}
    for name in ("node-ds.yaml", "nvidia-ds.yaml"):
        assert OWN_NODE in _granted(name)
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        subjects = {subject["name"] for subject in manifests.one(DISCOVERY, kind)["subjects"]}
        assert subjects == {manifests.NODE, "gpushare-nvidia"}


def test_the_finder_is_on_every_node_and_needs_next_to_nothing_there() -> None:
    (container,) = pod()["containers"]
    assert pod()["tolerations"] == [{"operator": "Exists"}]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod().keys()
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {volume["hostPath"]["path"] for volume in pod()["volumes"]} == {"/sys/bus", "/sys/devices"}
    assert all(mount["readOnly"] and mount["mountPath"].startswith("/host/sys/") for mount in container["volumeMounts"])
