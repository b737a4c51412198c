"""A component may do what its code asks of the API server, and nothing else.

What it asks is not written down here but read from its sources: every request that they build is built here for the
same kind of object, and its path is read as the API server reads it.
"""

import ast
import contextlib
import itertools
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

import gpushare
from gpushare.core.facts import objects
from gpushare.extender import app
from gpushare.gpu.simulated import Simulated
from gpushare.kube import client, pod_requests, requests, resources
from gpushare.kube.errors import ApiError
from gpushare.kube.reflector import Reflector
from gpushare.kube.requests import Request
from gpushare.kube.resources import Resource
from gpushare.mps.cluster import Watches
from gpushare.node import app as node_app
from gpushare.node import pinning
from gpushare.node.influx import interval
from gpushare.webhook import app as webhook_app
from gpushare.webhook import reviews, rules
from tests.support import manifests

GUIDE = manifests.ROOT / "docs" / "device-plugin.md"
POLICY_GUIDE = manifests.ROOT / "docs" / "policy-configmap.md"
KETI = "keti/deployments/rbac/role_binding.yaml"
SOURCES = Path(gpushare.__file__).parent
USED_BY_ALL = (SOURCES / "kube" / "events.py",)
REVIEWING = sorted((SOURCES / "kube" / "reviewing").rglob("*.py"))
USED_TO_BE_SCRAPED = [*sorted((SOURCES / "kube" / "scraping").rglob("*.py")), *REVIEWING]
RESCHEDULING = SOURCES / "extender" / "policy" / "rescheduler.py"
USED_BY_THE_EXTENDER = (
    *sorted({*(SOURCES / "extender").rglob("*.py")} - {RESCHEDULING}), *USED_TO_BE_SCRAPED, *USED_BY_ALL,
)  # fmt: skip
ON_REQUEST = SOURCES / "node" / "publishing" / "unhealthy_configmap.py"
EVICTING = SOURCES / "node" / "usage" / "eviction.py"
USED_BY_THE_NODE = (
    *sorted({*(SOURCES / "node").rglob("*.py")} - {ON_REQUEST, EVICTING}), *USED_TO_BE_SCRAPED, *USED_BY_ALL,
)  # fmt: skip
WRITERS = [SOURCES / "node" / path for path in ("publishing/publisher.py", "usage/gpunode_writer.py")]
USED_TO_SELL_GPUS = (
    *WRITERS, *sorted((SOURCES / "node").glob("*.py")), *sorted((SOURCES / "node" / "nvidia").rglob("*.py")),
    *USED_TO_BE_SCRAPED, *USED_BY_ALL,
)  # fmt: skip
OF_SHARES = {SOURCES / "node" / name for name in ("app.py", "pinning.py")}
USED_BY_MPS = (*sorted((SOURCES / "mps").rglob("*.py")), *USED_BY_ALL)
USED_BY_THE_WEBHOOK = sorted((SOURCES / "webhook").rglob("*.py"))
PATH = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/v\w+(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?P<sub>/\w+)?)?"
)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
POLICIES = ("", resources.MUTATING_POLICIES.group, resources.MUTATING_POLICIES.plural, "get")

Right = tuple[str, str, str, str]  # where ("" is everywhere), which group, what, which verb


class Recorded(client.Api):
    """Answers nothing, and remembers the rights that an answer would have needed."""

    def __init__(self, version: tuple[int, int] | None = (1, 36)) -> None:
        self.rights: set[Right] = set()
        self.others: set[str] = set()
        self._version = version
        self._timeout = 1.0

    async def _post(self, request: Request) -> None:
        """Every request takes the ordinary way."""

    async def _open(self, request: Request, *, endless: bool = False) -> NoReturn:
        path = PATH.fullmatch(request.path)
        if path is None:
            self.others.add(request.path)
        else:
            reading = "get" if path["name"] else "watch" if "watch" in (request.query or {}) else "list"
            # A pod may be in any namespace; only a list or a watch can be of one alone.
            where = (path["namespace"] or "") if not path["name"] and request.method == "GET" else ""
            what = path["plural"] + (path["sub"] or "")
            self.rights.add((where, path["group"] or "", what, VERBS.get(request.method, reading)))
        raise ApiError(404, "NotFound", request.path)


def _namespace(resource: Resource) -> str:
    return "ns" if resource.namespaced else ""


async def _pages(api: client.Api, resource: Resource) -> None:
    async for _ in api.list_pages(resource, objects.Pod):
        pass


async def _watch(api: client.Api, resource: Resource) -> None:
    async with api.watch(resource, objects.Pod, "1"):
        pass


BUILT: dict[str, Callable[[Resource], Request]] = {
    "read": lambda of: requests.read(of, _namespace(of), "name"),
    "create": lambda of: requests.create(of, _namespace(of), {}),
    "apply": lambda of: requests.apply(of, _namespace(of), "name", {}, manager="manager"),
    "patch": lambda of: requests.patch(of, _namespace(of), "name", {}),
    "patch_status": lambda of: requests.patch_status(of, _namespace(of), "name", {}),
    "replace": lambda of: requests.replace(of, _namespace(of), "name", {}),
    "replace_status": lambda of: requests.replace_status(of, _namespace(of), "name", {}),
    "delete": lambda of: requests.delete(of, _namespace(of), "name"),
}
ABOUT_PODS: dict[str, Callable[[client.Api], Awaitable[object]]] = {
    "read": lambda api: pod_requests.read(api, "ns", "pod"),
    "annotate": lambda api: pod_requests.annotate(api, "ns", "pod", "uid", {}),
    "bind": lambda api: pod_requests.bind(api, "ns", "pod", "uid", "node", {}),
    "evict": lambda api: pod_requests.evict(api, "ns", "pod", "uid"),
}
COLLECTIONS: dict[str, Callable[[client.Api, Resource], Awaitable[object]]] = {
    "list_pages": _pages,
    "watch": _watch,
    "revision": lambda api, of: api.revision(of),
}
SENT = {"send", "fetch", "find"}  # what was built
FOR_ALL = {"version"}  # the cluster's own role system:public-info-viewer


async def _rights(sources: Iterable[Path], made: Callable[[client.Api], dict[str, Reflector[Any]]]) -> Recorded:
    """Of a component with these sources; `made` makes its watches."""
    api = Recorded()
    asked = [*_asked(sources, api)]
    for reflector in made(api).values():
        asked += [_watched(api, reflector)]
    for one in asked:
        with contextlib.suppress(ApiError):
            await one
    api.rights -= {(where, *what) for where, *what in api.rights if where and ("", *what) in api.rights}
    return api


async def _watched(api: client.Api, reflector: Reflector[Any]) -> None:
    of, namespace = reflector._resource, reflector._namespace
    with contextlib.suppress(ApiError):
        async for _ in api.list_pages(of, objects.Pod, namespace=namespace):
            pass
    with contextlib.suppress(ApiError):
        async with api.watch(of, objects.Pod, "1", namespace=namespace):
            pass
    await api.revision(of, namespace)


def _asked(sources: Iterable[Path], api: client.Api) -> Iterator[Awaitable[object]]:
    """Every request in the sources, to be sent by `api`."""
    for path in sources:
        tree = ast.parse(path.read_text("utf-8"))
        imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert "gpushare.kube.requests" not in imported, f"{path}: a request built by hand has rights nobody reads here"
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield from _request(node, ast.unparse(node.func.value), node.func.attr, api)


def _request(call: ast.Call, of: str, name: str, api: client.Api) -> Iterator[Awaitable[object]]:
    if of == "requests":
        yield api.send(BUILT[name](_resource(call)))
    elif of == "pod_requests":
        yield ABOUT_PODS[name](api)
    elif re.search(r"\b_?api$", of) and name in COLLECTIONS:
        yield COLLECTIONS[name](api, _resource(call))


def _resource(call: ast.Call) -> Resource:
    """A constant: what a component may do must not depend on what it computes."""
    module, _, name = ast.unparse(call.args[0]).rpartition(".")
    assert module == "resources", f"not a constant of gpushare.kube.resources: {ast.unparse(call)}"
    resource = getattr(resources, name)
    assert isinstance(resource, Resource)
    return resource


def _extender(api: client.Api) -> dict[str, Reflector[Any]]:
    extender = app.Extender(app.Config("127.0.0.1", [12345], "binpack", None, None), api)
    return {**extender.watches, "gpunodes": extender.vitals_watch}


def _node(api: client.Api) -> dict[str, Reflector[Any]]:
    return node_app.Node(node_app.Config("node"), api, Simulated([])).watches.reflectors


def _mps(api: client.Api) -> dict[str, Reflector[Any]]:
    watches = Watches(api, "node")
    return {"node": watches.of_node, "pods": watches.of_pods}


def _webhook(api: client.Api) -> dict[str, Reflector[Any]]:
    config = webhook_app.Config("127.0.0.1", 9443, rules.Choices(), reviews.On())
    webhook = webhook_app.Webhook(config, api)
    return {"nodes": webhook.watch, "priorityclasses": webhook.classes_watch}


def test_every_request_the_client_can_make_is_known_here() -> None:
    def public(names: Mapping[str, Any], module: str) -> set[str]:
        made_there = {name for name, value in names.items() if getattr(value, "__module__", "") == module}
        return {name for name in made_there if callable(names[name]) and not name.startswith("_")}

    assert public(vars(client.Api), client.__name__) == COLLECTIONS.keys() | SENT | FOR_ALL
    assert public(vars(requests), requests.__name__) == BUILT.keys() | {"Request"}
    assert public(vars(pod_requests), pod_requests.__name__) == ABOUT_PODS.keys()


async def test_the_extender_may_do_what_it_does_and_nothing_else() -> None:
    asked = await _rights(USED_BY_THE_EXTENDER, _extender)
    assert _granted("extender.yaml") == asked.rights
    assert not asked.others


async def test_the_node_part_may_do_what_it_does_and_nothing_else() -> None:
    asked = await _rights(USED_BY_THE_NODE, _node)
    assert _granted("node-ds.yaml") == asked.rights
    assert not asked.others
    *_, policies = manifests.one("node-ds.yaml", "ClusterRole")["rules"]
    assert policies == {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingadmissionpolicies", "mutatingwebhookconfigurations"],
        "resourceNames": [pinning.POLICY],
        "verbs": ["get"],
    }
    assert POLICIES in asked.rights


async def test_the_node_part_that_sells_gpus_may_do_what_it_does_and_nothing_else() -> None:
    asked = await _rights(sorted({*USED_TO_SELL_GPUS} - OF_SHARES), _node)
    assert _granted("nvidia-ds.yaml") == asked.rights
    assert not asked.others


async def test_mps_may_do_what_it_does_and_nothing_else() -> None:
    asked = await _rights(USED_BY_MPS, _mps)
    assert _granted("mps-ds.yaml") == asked.rights
    assert not asked.others


async def test_ketis_accounts_may_do_what_they_do_and_nothing_else() -> None:
    """What kube-scheduler needs besides is granted by other roles."""
    asked = await _rights(
        (*USED_BY_THE_EXTENDER, RESCHEDULING), lambda api: {**_extender(api), "policy": _policy_watch(api, "gpu")}
    )
    assert _granted(KETI, "keti-gpu-scheduler") == asked.rights
    asked = await _rights(
        (*USED_BY_THE_NODE, *USED_BY_MPS),
        lambda api: {**_node(api), **_mps(api), "interval": interval.watch(api, interval.Interval(10.0))},
    )
    assert _granted(KETI, "keti-gpu-device-plugin") == asked.rights
    assert not asked.others


async def test_the_webhook_may_do_what_it_does_and_nothing_else() -> None:
    asked = await _rights(USED_BY_THE_WEBHOOK, _webhook)
    # A single object may be in any namespace for the reader of paths; the role for the Secret is of its own one.
    granted = {("" if what == "secrets" else where, group, what, verb) for where, group, what, verb in
               _granted("webhook.yaml")}  # fmt: skip
    assert granted == asked.rights
    assert not asked.others
    named = [rule for kind in ("ClusterRole", "Role") for rule in manifests.one("webhook.yaml", kind)["rules"]]
    assert [rule["resourceNames"] for rule in named if "patch" in rule["verbs"]] == [
        [rules.PIN, rules.GUARD, rules.VALIDATE],
        [rules.SERVICE],
    ]


async def test_the_role_for_the_list_of_unhealthy_gpus_grants_what_is_asked() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    role, binding = yaml.safe_load_all(text)
    (rule,) = role["rules"]
    asked = (await _rights([ON_REQUEST], lambda _: {})).rights
    assert {("", *right) for right in _pairs(rule)} == asked
    account = manifests.one("device-plugin-rbac.yaml", "ServiceAccount")["metadata"]
    assert [(s["name"], s["namespace"]) for s in binding["subjects"]] == [(account["name"], account["namespace"])]


async def test_the_role_for_policy_configmaps_grants_what_is_asked() -> None:
    """With `--policy-namespace`, and what the extender may do anyway left out."""
    (text,) = re.findall(r"```yaml\n(kind: Role\n.*?)```", POLICY_GUIDE.read_text("utf-8"), re.DOTALL)
    role, _, evicting, _ = yaml.safe_load_all(text)
    namespace = role["metadata"]["namespace"]
    watching = await _rights((), lambda api: {"policy": _policy_watch(api, namespace)})
    assert {(namespace, *right) for rule in role["rules"] for right in _pairs(rule)} == watching.rights
    asked = (await _rights([RESCHEDULING], lambda _: {})).rights - _granted("extender.yaml")
    assert {("", *right) for rule in evicting["rules"] for right in _pairs(rule)} == asked


def _policy_watch(api: client.Api, namespace: str) -> Reflector[Any]:
    config = app.Config("127.0.0.1", [12345], "binpack", None, None, policy_namespace=namespace)
    part = app.Extender(config, api).policy
    assert part is not None
    return part.watch


@pytest.mark.parametrize("name", ["node-ds.yaml", "device-plugin-rbac.yaml", KETI])
async def test_the_right_to_evict_is_given_only_by_removing_a_sign(name: str) -> None:
    asked = (await _rights([EVICTING], lambda _: {})).rights
    assert asked.isdisjoint(_granted(name, "keti-gpu-device-plugin" if name == KETI else None))
    (line,) = re.findall(r"^  # (- .*pods/eviction.*)$", (manifests.DEPLOY / name).read_text("utf-8"), re.MULTILINE)
    (rule,) = yaml.safe_load(line)
    assert {("", *right) for right in _pairs(rule)} == asked


async def test_an_old_api_server_is_asked_for_nothing_more() -> None:
    api = Recorded((1, 20))
    with contextlib.suppress(ApiError):
        await ABOUT_PODS["bind"](api)
    assert api.rights < _granted("extender.yaml")


async def test_everybody_may_ask_for_the_version() -> None:
    api = Recorded(None)
    with pytest.raises(ApiError):
        await api.version()
    assert api.others == {"/version"}  # the cluster's own role system:public-info-viewer


@pytest.mark.parametrize(
    "source",
    [
        "requests.patch(kind, '', 'name', {})",
        "requests.delete(self.resource, '', 'name')",
        "api.list_pages(which, objects.Pod)",
        "from gpushare.kube.requests import Request",
    ],
)
def test_a_request_whose_right_cannot_be_read_is_refused(source: str, tmp_path: Path) -> None:
    file = tmp_path / "component.py"
    file.write_text(source)
    with pytest.raises(AssertionError):
        list(_asked([file], Recorded()))


@pytest.mark.parametrize("name", ["extender-tls.yaml", "gpu-scheduler.yaml"])
def test_its_rights_are_the_same_in_every_manifest(name: str) -> None:
    def rights(name: str) -> list[manifests.Object]:
        documents = (d for d in manifests.documents(name) if d["metadata"]["name"] == manifests.EXTENDER)
        return [d for d in documents if "Role" in d["kind"] or d["kind"] == "ServiceAccount"]

    assert rights(name) == rights("extender.yaml")


@pytest.mark.parametrize(
    ("name", "extender", "lease", "account"),
    [
        ("gpu-scheduler.yaml", manifests.EXTENDER, "gpu-scheduler", ("kube-system", manifests.EXTENDER)),
        (KETI, "keti-gpu-scheduler", "keti-gpu-scheduler-lease", ("gpu", "scheduler")),
    ],
)
def test_the_second_scheduler_has_what_a_kube_scheduler_has(
    name: str, extender: str, lease: str, account: tuple[str, str]
) -> None:
    bindings = [d for d in manifests.documents(name) if d["kind"].endswith("RoleBinding")]
    bindings = [d for d in bindings if d["metadata"]["name"] != "keti-gpu-device-plugin"]
    assert {d["roleRef"]["name"] for d in bindings if d["metadata"]["name"] != extender} == {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
        lease,
    }
    namespace, called = account
    assert all(d["subjects"] == [{"kind": "ServiceAccount", "name": called, "namespace": namespace}] for d in bindings)
    (rule,) = manifests.one(name, "Role", lease)["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["leases"], ["gpu-scheduler"])


def test_people_who_look_change_nothing() -> None:
    rules = manifests.one("view-rbac.yaml", "ClusterRole", "gpushare-view")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    policies = {"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations"}
    read = {resource for rule in rules for resource in rule["resources"]}
    assert read == {"nodes", "pods", "events", "gpunodes", "namespaces", *policies}


def test_prometheus_may_read_the_metrics_of_nodes_and_nothing_else() -> None:
    rules = manifests.one("view-rbac.yaml", "ClusterRole", "gpushare-metrics")["rules"]
    assert rules == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def _granted(name: str, called: str | None = None) -> set[Right]:
    """By the roles of a file, or by those of this name."""
    return {
        (document["metadata"].get("namespace", ""), *right)
        for document in manifests.documents(name)
        if document["kind"] in ("ClusterRole", "Role") and called in (None, document["metadata"]["name"])
        for rule in document["rules"]
        for right in _pairs(rule)
    }


def _pairs(rule: manifests.Object) -> Iterator[tuple[str, str, str]]:
    return itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
