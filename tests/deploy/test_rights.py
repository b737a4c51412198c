"""A component may do what its code asks of the API server, and nothing else.

What it asks is not written down here but recorded: every request method of the client that its code calls is called,
and the path that comes out is read as the API server reads it.
"""

import ast
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

import gpushare
from gpushare.core.facts import objects
from gpushare.extender import app
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client, models
from gpushare.kube.errors import ApiError
from gpushare.kube.reflector import Reflector
from gpushare.node import app as node_app
from gpushare.node import pinning
from tests.support import manifests

GUIDE = manifests.ROOT / "docs" / "device-plugin.md"
SOURCES = Path(gpushare.__file__).parent
USED_BY_ALL = (SOURCES / "kube" / "events.py",)
USED_BY_THE_EXTENDER = (*sorted((SOURCES / "extender").rglob("*.py")), *USED_BY_ALL)
ON_REQUEST = SOURCES / "node" / "publishing" / "unhealthy_configmap.py"
USED_BY_THE_NODE = (*sorted({*(SOURCES / "node").rglob("*.py")} - {ON_REQUEST}), *USED_BY_ALL)
NAMESPACED = re.compile(
    r"/api/v1(?:/namespaces/(?P<namespace>[^/]+))?/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+)(?P<sub>/\w+)?)?"
)
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}

Right = tuple[str, str, str]  # where ("" is everywhere), what, which verb


class Recorded(client.Api):
    """Answers nothing, and remembers what it would have taken to."""

    def __init__(self, version: tuple[int, int] = (1, 36)) -> None:
        self.rights: set[Right] = set()
        self.others: set[str] = set()
        self._version = version
        self._timeout = 1.0

    async def _open(
        self,
        method: str,
        path: str,
        params: client.Params | None,
        data: bytes | None = None,
        content_type: str = client.JSON,
        endless: bool = False,
    ) -> NoReturn:
        found = NAMESPACED.fullmatch(path)
        if found is None:
            self.others.add(path)
        else:
            reading = "get" if found["name"] else "watch" if "watch" in (params or {}) else "list"
            # A pod may be in any namespace; only a list or a watch can be of one alone.
            where = (found["namespace"] or "") if not found["name"] and method == "GET" else ""
            self.rights.add((where, found["kind"] + (found["sub"] or ""), VERBS.get(method, reading)))
        raise ApiError(404, "NotFound", path)


REQUESTS: dict[str, Callable[[client.Api], Awaitable[object]]] = {
    "bind": lambda api: api.bind("ns", "pod", "uid", "node", {}),
    "create_config_map": lambda api: api.create_config_map("ns", "map", {}, {}),
    "delete_config_map": lambda api: api.delete_config_map("ns", "map", "uid"),
    "get_config_map": lambda api: api.get_config_map("ns", "map"),
    "patch_config_map": lambda api: api.patch_config_map("ns", "map", {}),
    "create_event": lambda api: api.create_event(
        models.Event(
            metadata=models.ObjectMeta(name="e", namespace="ns"),
            involved_object=models.ObjectReference(kind="Pod", name="pod"),
            type="Normal",
            reason="",
            message="",
            first_timestamp="",
            last_timestamp="",
            source=models.EventSource(component=""),
            reporting_component="",
        )
    ),
    "dry_run": lambda api: api.dry_run("/api/v1/namespaces/ns/pods", {}, objects.Pod),
    "get_pod": lambda api: api.get_pod("ns", "pod"),
    "has_mutating_policy": lambda api: api.has_mutating_policy(pinning.POLICY),
    "patch_node_annotations": lambda api: api.patch_node_annotations("node", {}),
    "patch_node_capacity": lambda api: api.patch_node_capacity("node", {}),
    "patch_pod_annotations": lambda api: api.patch_pod_annotations("ns", "pod", "uid", {}),
    "version": lambda api: api.version(),
}
ANY_PATH = {"get", "list_pages", "revision", "watch"}  # mostly a reflector's


async def _rights(sources: Iterable[Path], made: Callable[[client.Api], dict[str, Reflector[Any]]]) -> Recorded:
    """Of a component with these sources; `made` makes its watches."""
    api = Recorded()
    for name in set(_called(sources)) - ANY_PATH:
        with contextlib.suppress(ApiError):
            await REQUESTS[name](api)
    for reflector in made(api).values():
        with contextlib.suppress(ApiError):
            async for _ in api.list_pages(reflector._path, objects.Pod):
                pass
        with contextlib.suppress(ApiError):
            async with api.watch(reflector._path, objects.Pod, "1"):
                pass
        with contextlib.suppress(ApiError):
            await api.revision(reflector._path)
    api.rights -= {(where, *what) for where, *what in api.rights if where and ("", *what) in api.rights}
    return api


def _extender(api: client.Api) -> dict[str, Reflector[Any]]:
    return app.Extender(app.Config("127.0.0.1", [12345], "binpack", None, None), api).watches


def _node(api: client.Api) -> dict[str, Reflector[Any]]:
    return node_app.Node(node_app.Config("node"), api, Simulated([])).watches.reflectors


def _called(sources: Iterable[Path]) -> list[str]:
    """Methods that the code calls on something named api."""
    calls = (
        node.func
        for path in sources
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )
    called = [call.attr for call in calls if re.search(r"\b_?api$", ast.unparse(call.value))]
    return [name for name in called if name in vars(client.Api)]  # `core.facts.objects` goes by that name, too


def test_every_request_the_client_can_make_is_known_here() -> None:
    methods = {name for name, value in vars(client.Api).items() if callable(value) and not name.startswith("_")}
    assert methods == REQUESTS.keys() | ANY_PATH


async def test_the_extender_may_do_what_it_does_and_nothing_else() -> None:
    granted = _granted("extender.yaml")
    assert not ANY_PATH & set(_called(USED_BY_THE_EXTENDER))
    assert granted == (await _rights(USED_BY_THE_EXTENDER, _extender)).rights


async def test_the_node_part_may_do_what_it_does_and_nothing_else() -> None:
    asked = await _rights(USED_BY_THE_NODE, _node)
    by_path = [name for name in _called(USED_BY_THE_NODE) if name in ANY_PATH]
    assert sorted(by_path) == ["get", "list_pages"]  # this node, for kubelet's version; the pods of this node once more
    assert _granted("node-ds.yaml") == asked.rights | {("", "nodes", "get")}
    *_, policies = manifests.one("node-ds.yaml", "ClusterRole")["rules"]
    assert policies == {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingadmissionpolicies"],
        "resourceNames": [pinning.POLICY],
        "verbs": ["get"],
    }
    assert asked.others == {f"{client.MUTATING_POLICIES}/{pinning.POLICY}"}


async def test_the_role_for_the_list_of_sick_gpus_grants_what_is_asked() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    role, binding = yaml.safe_load_all(text)
    (rule,) = role["rules"]
    asked = (await _rights([ON_REQUEST], lambda _: {})).rights
    assert {("", kind, verb) for kind in rule["resources"] for verb in rule["verbs"]} == asked
    account = manifests.one("device-plugin-rbac.yaml", "ServiceAccount")["metadata"]
    assert [(s["name"], s["namespace"]) for s in binding["subjects"]] == [(account["name"], account["namespace"])]


async def test_an_old_api_server_is_asked_for_nothing_more() -> None:
    api = Recorded((1, 20))
    with contextlib.suppress(ApiError):
        await REQUESTS["bind"](api)
    assert api.rights < _granted("extender.yaml")


async def test_everybody_may_ask_for_the_version() -> None:
    api = Recorded()
    api._version = None
    with pytest.raises(ApiError):
        await api.version()
    assert api.others == {"/version"}  # the cluster's own role system:public-info-viewer


@pytest.mark.parametrize("name", ["extender-tls.yaml", "gpu-scheduler.yaml"])
def test_its_rights_are_the_same_in_every_manifest(name: str) -> None:
    def rights(name: str) -> list[manifests.Object]:
        documents = (d for d in manifests.documents(name) if d["metadata"]["name"] == manifests.EXTENDER)
        return [d for d in documents if "Role" in d["kind"] or d["kind"] == "ServiceAccount"]

    assert rights(name) == rights("extender.yaml")


def test_the_second_scheduler_has_what_a_kube_scheduler_has() -> None:
    bindings = [d for d in manifests.documents("gpu-scheduler.yaml") if d["kind"].endswith("RoleBinding")]
    assert {d["roleRef"]["name"] for d in bindings if d["metadata"]["name"] != manifests.EXTENDER} == {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
        "gpu-scheduler",
    }
    account = {"kind": "ServiceAccount", "name": manifests.EXTENDER, "namespace": "kube-system"}
    assert all(d["subjects"] == [account] for d in bindings)
    (rule,) = manifests.one("gpu-scheduler.yaml", "Role", "gpu-scheduler")["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["leases"], ["gpu-scheduler"])


def test_people_who_look_change_nothing() -> None:
    rules = manifests.one("view-rbac.yaml", "ClusterRole")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    policies = {"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}
    read = {resource for rule in rules for resource in rule["resources"]}
    assert read == {"nodes", "pods", "events", "namespaces", *policies}


def _granted(name: str) -> set[Right]:
    roles = {"ClusterRole": "", "Role": "kube-system"}
    return {
        (roles[document["kind"]], resource, verb)
        for document in manifests.documents(name)
        if document["kind"] in roles
        for rule in document["rules"]
        if rule["apiGroups"] == [""]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
