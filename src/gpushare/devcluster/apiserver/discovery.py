"""Discovery: /version, the lists of groups and resources, and as much OpenAPI as kubectl needs. Pure.

kubectl first asks for aggregated discovery; it gets the plain form instead and asks again. Before it creates or applies
anything it reads from OpenAPI whether the server checks fields itself. This server says yes: it checks the fields it
knows and stores the others.
"""

from typing import Any, Final

from gpushare.devcluster.apiserver import paths
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.kinds.table import Kind
from gpushare.devcluster.apiserver.status import Object

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CHANGE: Final = ("get", "patch", "update")
# The verbs of each sub-resource, and its kind where that is another one than its owner's.
_SUBRESOURCES: Final[dict[str, Object]] = {
    "status": {"verbs": _CHANGE},
    "scale": {"verbs": _CHANGE, "group": "autoscaling", "version": "v1", "kind": "Scale"},
    "binding": {"verbs": ("create",), "kind": "Binding"},
    "log": {"verbs": ("get",)},
}
_VERSIONS: Final = {kind.group: kind.version for kind in table.KINDS}  # a group has one version here
_GROUPS: Final = tuple(_VERSIONS)


def answer(path: str, version: str) -> Object | None:
    """The body for a discovery path; None for any other path."""
    match path.strip("/").split("/"):
        case ["version"]:
            return _version(version)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(group) for group in _GROUPS if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in _GROUPS:
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group)
        case ["api", "v1"]:
            return _resources("")
        case ["apis", group, version] if _VERSIONS.get(group) == version:
            return _resources(group)
        case ["openapi", "v3"]:
            return {
                "paths": {_openapi_path(g): {"serverRelativeURL": f"/openapi/v3/{_openapi_path(g)}"} for g in _GROUPS}
            }
        case ["openapi", "v3", *rest]:
            return next((_openapi(group) for group in _GROUPS if _openapi_path(group) == "/".join(rest)), None)
        case ["openapi", "v2"]:
            return _EMPTY_OPENAPI | {"swagger": "2.0", "definitions": {}}
    return None


_EMPTY_OPENAPI: Final[Object] = {"info": {"title": "gpushare's test API server", "version": "0"}, "paths": {}}


def _version(version: str) -> Object:
    major, minor = version.split(".")[:2]
    return {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}.0+gpushare-devcluster"}


def _group(group: str) -> Object:
    version = {"groupVersion": _group_version(group), "version": _VERSIONS[group]}
    return {"name": group, "versions": [version], "preferredVersion": version}


def _resources(group: str) -> Object:
    listed: list[Object] = []
    for kind in table.KINDS:
        if kind.group == group:
            listed += _of_kind(kind)
    if not group:
        listed.append({"name": "bindings", "singularName": "binding", "namespaced": True, **_SUBRESOURCES["binding"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": _group_version(group),
        "resources": listed,
    }


def _group_version(group: str) -> str:
    return f"{group}/{_VERSIONS[group]}" if group else _VERSIONS[group]


def _of_kind(kind: Kind) -> list[Object]:
    common: Object = {"namespaced": kind.namespaced, "kind": kind.kind}
    names = {"name": kind.plural, "singularName": kind.kind.lower()}
    itself = {**names, **common, "verbs": VERBS, "shortNames": kind.short, "categories": kind.categories}
    below = [
        {"name": f"{kind.plural}/{name}", "singularName": "", **common, **_SUBRESOURCES[name]}
        for name in paths.subresources(kind)
    ]
    return [itself, *below]


def _openapi_path(group: str) -> str:
    return f"{'apis' if group else 'api'}/{_group_version(group)}"


def _openapi(group: str) -> Object:
    """No schemas: only that each kind can be patched and that the server checks fields."""
    described: Object = {}
    for kind in table.KINDS:
        if kind.group == group:
            what = {"group": group, "version": kind.version, "kind": kind.kind}
            checked: list[Any] = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
            patch = {"parameters": checked, "x-kubernetes-group-version-kind": what, "responses": {}}
            middle = "/namespaces/{namespace}" if kind.namespaced else ""
            described[f"/{_openapi_path(group)}{middle}/{kind.plural}/{{name}}"] = {"patch": patch}
    return _EMPTY_OPENAPI | {"openapi": "3.0.0", "paths": described, "components": {"schemas": {}}}
