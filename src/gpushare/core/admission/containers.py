"""The containers of a pod as JSON, and env entries that admission adds to them.

An `Addition` is data: the stand-in API server applies it in place, the webhook answers it as a JSONPatch. Pods come
from anybody, and before the API server has checked them: every field may be missing or of another type.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from gpushare.core.facts import names

Object = dict[str, Any]

APPS: Final = "containers"
INITS: Final = "initContainers"
MOST: Final = 500  # containers of each list that are looked through
REFERENCE: Final = "metadata.annotations['{key}']"
_PINNED: Final = f"metadata.annotations['{names.VISIBLE_PREFIX}"


class Addition(NamedTuple):
    """Env entries for one container, after those it has."""

    field: str  # of the spec
    position: int
    entries: list[Object]


def spec(pod: Object) -> Object:
    return _mapping(pod.get("spec"))


def listed(pod: Object, field: str) -> list[Object]:
    """The containers of one list; what is no container counts as an empty one, so that positions stay."""
    found = spec(pod).get(field)
    return [_mapping(one) for one in found] if isinstance(found, list) else []


def limits(container: Object) -> Object:
    return _mapping(_mapping(container.get("resources")).get("limits"))


def env(container: Object) -> list[Any]:
    found = container.get("env")
    return found if isinstance(found, list) else []


def pinned_by(container: Object) -> str:
    """The path of the annotation of ours from which its last env entry takes the GPUs; empty: it is not pinned."""
    entries = env(container)
    last = _mapping(entries[-1]) if entries else {}
    if last.get("name") != names.VISIBLE_DEVICES:
        return ""
    path = _mapping(_mapping(last.get("valueFrom")).get("fieldRef")).get("fieldPath")
    return path if isinstance(path, str) and path.startswith(_PINNED) else ""


def add(pod: Object, additions: Iterable[Addition]) -> None:
    """In place."""
    for field, index, entries in additions:
        container = pod["spec"][field][index]
        container["env"] = [*env(container), *entries]


def json_patch(pod: Object, additions: Iterable[Addition]) -> Iterator[Object]:
    """The same as operations of RFC 6902."""
    for field, index, entries in additions:
        path = f"/spec/{field}/{index}/env"
        if not env(listed(pod, field)[index]):
            yield {"op": "add", "path": path, "value": entries}
        else:
            yield from ({"op": "add", "path": f"{path}/-", "value": entry} for entry in entries)


def _mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}
