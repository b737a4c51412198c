"""Which object, collection or sub-resource a URL path names.

Pure. A path that only a real server has is answered with 501 and a sentence, a path that neither has with 404. Paths
that name no object are in `discovery`.
"""

from dataclasses import dataclass
from typing import Final

from gpushare.devcluster.apiserver import status
from gpushare.devcluster.apiserver.kinds import table
from gpushare.devcluster.apiserver.kinds.table import Kind

# Sub-resources that only a real server has.
_NOT_SUPPORTED: Final = ("attach", "ephemeralcontainers", "eviction", "exec", "portforward", "proxy", "resize")


@dataclass(frozen=True)
class Target:
    """`name` is empty for a collection, `subresource` for the object itself."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str) -> Target:
    group, version, parts = _group(path.strip("/").split("/"))
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in ("status", "finalize"):
        namespace, parts = parts[1], parts[2:]
    if namespace and not group and parts == ["bindings"]:
        return Target(table.BY_RESOURCE["pods"], namespace, "", "binding")
    kind = table.BY_RESOURCE.get(f"{parts[0]}.{group}" if group else parts[0]) if parts else None
    if kind is None or kind.version != version or len(parts) > 3 or (namespace and not kind.namespaced):
        raise status.no_such_path()
    name, subresource = (*parts[1:], "", "")[:2]
    if name and kind.namespaced and not namespace:
        raise status.no_such_path()
    if subresource in _NOT_SUPPORTED:
        raise status.not_supported(f"{kind.resource}/{subresource}")
    if subresource and subresource not in subresources(kind):
        raise status.no_such_path()
    return Target(kind, namespace, name, subresource)


def subresources(kind: Kind) -> list[str]:
    offered = [("status", kind.status is not None), ("scale", kind.scalable)]
    offered += [(name, kind.resource == "pods") for name in ("binding", "log")]
    return [name for name, there in offered if there]


def _group(parts: list[str]) -> tuple[str, str, list[str]]:
    """The API group, "" for the core, its version, and what comes after it."""
    if not all(parts):
        raise status.no_such_path()
    match parts:
        case ["api", version, *rest]:
            return "", version, rest
        case ["apis", group, version, *rest]:
            return group, version, rest
    raise status.no_such_path()
