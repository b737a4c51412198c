"""Which object, collection or sub-resource a URL path names.

Pure, called by `apiserver` for every request. What a real server has and this one does not is answered with 501 and a
sentence, what neither has with 404.
"""

from dataclasses import dataclass
from typing import Final

from gpushare.devcluster import kinds, status
from gpushare.devcluster.kinds import Kind
from gpushare.devcluster.status import Object

# Sub-resources of a real server that this one knows by name only.
_ELSEWHERE: Final = ("attach", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize")


@dataclass(frozen=True)
class Target:
    """`name` is empty for a collection, `subresource` for the object itself."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str) -> Target:
    parts = path.strip("/").split("/")
    if parts[:2] != ["api", "v1"] or not all(parts):
        raise status.no_such_path()
    parts, namespace = parts[2:], ""
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in ("status", "finalize"):
        namespace, parts = parts[1], parts[2:]
    if namespace and parts == ["bindings"]:
        return Target(kinds.BY_RESOURCE["pods"], namespace, "", "binding")
    kind = kinds.BY_RESOURCE.get(parts[0]) if parts else None
    if kind is None or len(parts) > 3 or (namespace and not kind.namespaced):
        raise status.no_such_path()
    name, subresource = (*parts[1:], "", "")[:2]
    if name and kind.namespaced and not namespace:
        raise status.no_such_path()
    if subresource in _ELSEWHERE:
        raise status.not_in_the_double(f"{kind.resource}/{subresource}")
    if not _offers(kind, subresource):
        raise status.no_such_path()
    return Target(kind, namespace, name, subresource)


def _offers(kind: Kind, subresource: str) -> bool:
    if subresource == "status":
        return kind.status is not None
    return not subresource or (subresource == "binding" and kind.resource == "pods")


def fixed(path: str, version: str) -> Object | None:
    """The answers that do not depend on any object: who the server is and what it has."""
    if path == "/version":
        major, minor = version.split(".")[:2]
        return {"major": major, "minor": minor, "gitVersion": f"v{version}+gpushare-devcluster"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
    return _discovery() if path == "/api/v1" else None


def _discovery() -> Object:
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    resources: list[Object] = []
    for kind in kinds.KINDS:
        common = {"singularName": kind.kind.lower(), "namespaced": kind.namespaced, "kind": kind.kind}
        resources.append({"name": kind.resource, **common, "verbs": verbs})
        if kind.status:
            resources.append({"name": f"{kind.resource}/status", **common, "verbs": ["get", "patch", "update"]})
    binding = {"singularName": "", "namespaced": True, "kind": "Binding", "verbs": ["create"]}
    resources += [{"name": "pods/binding", **binding}, {"name": "bindings", **binding}]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": resources}
